/* Preloaded by tests/faults/test_disk.py: writes and syncs of the log's files fail for a while.
 *
 * FAIL_AT    the number of the matching call that fails first; 0 for none
 * FAIL_MS    how long every matching call fails from then on
 * FAIL_WITH  the errno
 * FAIL_LOG   a file that gets one byte for each matching call: '.' passed on, 'X' failed
 * NO_LOCKS   "files": no file lock works; "log": none on the log's own files
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long count;
static double failing_since = -1;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static ssize_t real_write(int fd, const void *bytes, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    return real(fd, bytes, size);
}

static int fails(int fd) {
    char link[64], path[4096];
    const char *at = getenv("FAIL_AT"), *ms = getenv("FAIL_MS"), *with = getenv("FAIL_WITH"), *log = getenv("FAIL_LOG");
    if (!at || !ms || !with || !log) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!strstr(path, "/holdfast.db")) return 0;
    pthread_mutex_lock(&lock);
    count++;
    if (failing_since < 0 && count == atol(at)) failing_since = now();
    int failed = failing_since >= 0 && now() < failing_since + atol(ms) / 1e3;
    pthread_mutex_unlock(&lock);
    int out = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (out >= 0) {
        real_write(out, failed ? "X" : ".", 1);
        close(out);
    }
    if (failed) errno = atoi(with);
    return failed;
}

#define PASS_ON(type, name, parameters, arguments)                     \
    type name parameters {                                             \
        static type (*real) parameters;                                \
        if (!real) real = (type (*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails(fd) ? -1 : real arguments;                        \
    }

PASS_ON(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))
PASS_ON(ssize_t, pwrite, (int fd, const void *bytes, size_t size, off_t at), (fd, bytes, size, at))
PASS_ON(ssize_t, pwrite64, (int fd, const void *bytes, size_t size, off64_t at), (fd, bytes, size, at))
PASS_ON(int, fsync, (int fd), (fd))
PASS_ON(int, fdatasync, (int fd), (fd))
PASS_ON(int, ftruncate, (int fd, off_t size), (fd, size))
PASS_ON(int, ftruncate64, (int fd, off64_t size), (fd, size))

static int is_lock(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

static int has_no_locks(int fd) {
    char link[64], path[4096];
    const char *which = getenv("NO_LOCKS");
    if (!which) return 0;
    if (!strcmp(which, "files")) return 1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/holdfast.db") || strstr(path, "(deleted)");
}

#define NO_LOCK(name)                                                           \
    int name(int fd, int command, ...) {                                        \
        static int (*real)(int, int, ...);                                      \
        if (!real) real = (int (*)(int, int, ...))dlsym(RTLD_NEXT, #name);      \
        va_list rest;                                                           \
        va_start(rest, command);                                                \
        void *argument = va_arg(rest, void *);                                  \
        va_end(rest);                                                           \
        if (is_lock(command) && has_no_locks(fd)) {                             \
            errno = ENOLCK;                                                     \
            return -1;                                                          \
        }                                                                       \
        return real(fd, command, argument);                                     \
    }

NO_LOCK(fcntl)
NO_LOCK(fcntl64)
