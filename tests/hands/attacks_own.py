"""More of what a hostile command tries: at the agent, the way outside, layers, limits, and the numbers left over.

Runs inside the hands after `attacks`, and prints the same: one JSON object, name → verdict.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

from tests.hands.attack_tools import (
    FOUND,
    HOST,
    LIBC,
    NUMBERS,
    attempt,
    call,
    connects,
    does,
    each,
    opened_for_writing,
    other_pids,
    read,
)

X86 = os.uname().machine == "x86_64"
DENIED = (errno.EPERM, errno.ENOSYS)


def unless(numbers: tuple[int, ...], name: str, *arguments: int) -> str:
    """What a system call answered instead of one of those errors; empty when it was one."""
    try:
        return f"{name} gave {call(name, *arguments)}"
    except OSError as error:
        return "" if error.errno in numbers else f"{name}: {error}"


def ends(code: str, *words: str) -> int:
    """How another Python ends that runs this."""
    return subprocess.run([sys.executable, "-c", code, *words], check=False, capture_output=True).returncode


# --- what is left of the numbers ---


def words_of_others() -> list[str]:
    """Command lines with the canary in them."""
    paths = [f"/proc/{name}/cmdline" for name in os.listdir("/proc") if name.isdigit()]
    return each(paths, lambda path: HOST["argument"].encode() in read(path))


def lent_rights() -> str:
    """A program that lends its owner's rights: here it lends none, whoever owns it."""
    path = "/workspace/lends"
    with open("/usr/bin/id", "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    os.chmod(path, 0o6755)
    ran = subprocess.run([path, "-u"], capture_output=True, check=True).stdout.decode().strip()
    kept = os.statvfs("/workspace").f_flag & os.ST_NOSUID
    return "" if ran == str(os.getuid()) and kept else f"ran as {ran}, nosuid {bool(kept)}"


def second_names() -> list[str]:
    """Files from outside that got a second name in the workspace."""
    paths = [HOST["secret_file"], "/etc/passwd", "/usr/bin/id", "/proc/self/environ", "/dev/null"]
    return each(paths, lambda path: does(os.link, path, "/workspace/second"))


def memory_of_the_host() -> str:
    """System V memory and message queues of the host, by the names that it gave them."""
    segment = LIBC.shmget(HOST["shm_key"], 0, 0)
    queue = LIBC.mq_open(HOST["queue"].encode(), os.O_RDONLY)
    return "" if segment < 0 and queue < 0 else f"segment {segment}, queue {queue}"


attempt("06 a secret on another command line")(words_of_others)
attempt("28 a program that lends rights")(lent_rights)
attempt("30 a second name of a file outside")(second_names)
attempt("69 set the clock")(lambda: does(time.clock_settime, time.CLOCK_REALTIME, time.time()))
attempt("69 set the host's name")(lambda: does(socket.sethostname, "taken"))
attempt("69 be called as the host")(lambda: socket.gethostname() == HOST["hostname"])
attempt("69 memory and queues of the host")(memory_of_the_host)
attempt("69 a file in the host's shared memory")(lambda: read(f"/dev/shm/{HOST['shm_file']}"))
attempt("71 services of the host by all its addresses")(
    lambda: each(
        ["127.0.0.1", "127.0.0.2", "0.0.0.0", "localhost", "hands", *HOST["addresses"]],
        lambda address: connects(socket.AF_INET, socket.SOCK_STREAM, (address, HOST["port"])),
    )
)
attempt("71 services of the host by IPv6")(
    lambda: each(
        ["::1", "::ffff:127.0.0.1"],
        lambda address: connects(socket.AF_INET6, socket.SOCK_STREAM, (address, HOST["port"])),
    )
)

# --- at the agent and the runner, which are of the same user ---


def limits_of_others() -> list[int]:
    """Processes whose limits could be set: the agent, which starts all, first."""
    which, out = resource.RLIMIT_NOFILE, []
    for pid in (1, *other_pids()):
        try:
            resource.prlimit(pid, which, resource.prlimit(pid, which))
            out.append(pid)
        except OSError:
            pass
    return out


def parts_of_others() -> list[str]:
    """Parts of the agent and its runners that could be opened."""
    names = ("mem", "fdinfo/3", "fd/3", "map_files", "root/etc/passwd", "cwd/host.json", "environ", "syscall", "stack")
    ours = {os.getpid(), os.getppid()}
    paths = [f"/proc/{pid}/{name}" for pid in {1, *other_pids()} - ours - set(children()) for name in names]
    return each(paths, lambda path: os.listdir(path) if path.endswith("map_files") else read(path))


def children() -> list[int]:
    """What the shell that runs us has started: it is a command's as we are."""
    return [pid for pid in other_pids() if b"python3" in read(f"/proc/{pid}/cmdline") or pid == os.getppid()]


attempt("own: limits of the agent")(limits_of_others)
attempt("own: parts of the agent and its runners")(parts_of_others)
attempt("own: descriptors of the runner by pidfd")(
    lambda: each([str(pid) for pid in other_pids()], lambda pid: LIBC.syscall(438, os.pidfd_open(int(pid)), 3, 0) >= 0)
)
attempt("own: journal and lock of the supervisor")(
    lambda: each(["/output/../journal", "/output/../lock", "/output/../groups", "/usage"], opened_for_writing)
)
attempt("own: let a tracer in")(
    lambda: (
        LIBC.prctl(0x59616D61, ctypes.c_ulong(-1 % 2**64), 0, 0, 0) == 0 and call("ptrace", 16, os.getppid(), 0, 0) == 0
    )
)


# --- at the filter of system calls ---


def old_calls() -> str:
    """System calls by the numbers of 32 bits, which the filter knows nothing of."""
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        r"page.write(bytes.fromhex('b814000000cd80c3'))"
        "\n"
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()\n"
    )
    ended = ends(code) if X86 else -signal.SIGSYS
    return "" if ended in (-signal.SIGSYS, -signal.SIGSEGV) else f"ended with {ended}"


def another_numbering() -> str:
    """The same calls by the numbers of x32."""
    ctypes.set_errno(0)
    done = LIBC.syscall(0x40000000 | NUMBERS["getpid"]) if X86 else -1
    return f"gave {done}" if done >= 0 else ""


def filter_of_our_own() -> str:
    """A later filter, one that would be asked first, lifts none of the earlier."""
    program = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(program)
    given = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(code)))
    LIBC.syscall(317 if X86 else 277, 1, 0, given)
    return unless(DENIED, "mount", 0, 0, 0, 0, 0)


def other_families() -> list[int]:
    """Families of sockets beyond unix, IPv4, IPv6 and netlink."""
    found = []
    for family in set(range(64)) - {1, 2, 10, 16}:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                socket.socket(family, kind).close()
                found.append(family)
            except OSError:
                pass
    return found


def other_namespaces() -> list[str]:
    """Each kind of namespace, by both doors."""
    kinds = (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
    out = [unless(DENIED, "unshare", kind) for kind in kinds]
    return [said for said in (*out, *(unless(DENIED, "clone", kind | 17, 0, 0, 0, 0) for kind in kinds[1:])) if said]


KERNEL = {
    "x86_64": {"kcmp": 312, "process_madvise": 440, "fanotify_init": 300, "name_to_handle_at": 303, "quotactl": 179,
               "acct": 163, "swapon": 167, "reboot": 169, "syslog": 103, "iopl": 172, "kexec_file_load": 320,
               "finit_module": 313, "process_vm_writev": 311, "move_pages": 279, "modify_ldt": 154},
    "aarch64": {"kcmp": 272, "process_madvise": 440, "fanotify_init": 262, "name_to_handle_at": 264, "quotactl": 60,
                "acct": 89, "swapon": 224, "reboot": 142, "syslog": 116, "kexec_file_load": 294, "finit_module": 273,
                "process_vm_writev": 271, "move_pages": 239},
}[os.uname().machine]  # fmt: skip
MOUNTS = {"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "fspick": 433, "mount_setattr": 442}
NUMBERS |= {**KERNEL, **MOUNTS, "pidfd_getfd": 438, "quotactl_fd": 443, "personality": 135 if X86 else 92}

for each_call in sorted({*KERNEL, *MOUNTS, "pidfd_getfd", "quotactl_fd"}):
    attempt(f"own: {each_call}")(lambda name=each_call: unless(DENIED, name, 0, 0, 0, 0, 0))  # type: ignore[misc]
attempt("own: system calls of 32 bits")(old_calls)
attempt("own: system calls of x32")(another_numbering)
attempt("own: a filter over the filter")(filter_of_our_own)
attempt("own: every family of sockets")(other_families)
attempt("own: every kind of namespace")(other_namespaces)
attempt("own: read what is executed")(
    lambda: unless(DENIED, "personality", 0x0400000) if "personality" in NUMBERS else ""
)


def privileges_by_prctl() -> list[int]:
    """Options of prctl that would give something back: new privileges, secure bits, capabilities, memory maps."""
    wanted = ((38, 0), (28, 0), (24, 0), (35, 1), (47, 2))
    return [option for option, value in wanted if LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0]


def program_without_a_name() -> str:
    """A program that is in memory alone is held by the same walls."""
    fd = os.memfd_create("x", 0)
    with open("/bin/cat", "rb") as source:
        os.write(fd, source.read())
    said = subprocess.run([f"/proc/self/fd/{fd}", "/proc/self/status"], pass_fds=[fd], capture_output=True, check=True)
    held = b"NoNewPrivs:\t1" in said.stdout and b"Seccomp:\t2" in said.stdout
    return "" if held else "it runs free"


attempt("own: privileges by prctl")(privileges_by_prctl)
attempt("own: a program without a name")(program_without_a_name)
attempt("own: a terminal's selection")(lambda: does(fcntl.ioctl, os.openpty()[1], 0x541C, b"\x02"))
attempt("own: real time")(lambda: does(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)))
attempt("own: go before others")(lambda: does(os.setpriority, os.PRIO_PROCESS, 0, -5))


def rewritten(path: str) -> bool:
    """True when a map could be given again."""
    with open(path, "w") as file:
        file.write("0 0 1")
    return True


attempt("own: maps of users")(lambda: each(["/proc/self/uid_map", "/proc/self/gid_map"], rewritten))

# --- files, of the kernel and of the system ---


def open_settings() -> list[str]:
    """Everything below /proc that is no process's and can be opened for writing."""
    paths = []
    for path, folders, names in os.walk("/proc"):
        if path == "/proc":
            folders[:] = [name for name in folders if not name.isdigit() and not name.endswith("self")]
        paths += [os.path.join(path, name) for name in names if not os.path.islink(os.path.join(path, name))]
    return each(paths, opened_for_writing)


def open_folders() -> list[str]:
    """Folders that can be written to and are none of ours."""
    ours = ("/proc", "/workspace", "/output", "/tmp", "/dev/shm", "/home/agent", "/dev/pts")
    out = []
    for path, folders, _ in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(path, name) not in ours]
        if path.count("/") > 4:
            folders.clear()
        if os.access(path, os.W_OK):
            out.append(path)
    return out


def core_left() -> list[str]:
    """What a crash left."""
    ends("import os; os.abort()")
    return [name for name in os.listdir("/workspace") if name.startswith("core")]


def nothing_in_place() -> bool:
    """A device 0/0 hides a file from overlays; it is none that can be opened."""
    os.mknod("/workspace/whiteout", 0o20666, 0)
    os.close(os.open("/workspace/whiteout", os.O_RDONLY))
    return True


attempt("own: settings of the kernel")(open_settings)
attempt("own: secrets of the kernel")(lambda: each(["/proc/kcore", "/proc/kmsg", "/dev/kmsg", "/proc/1/pagemap"], read))
attempt("own: folders of the system")(open_folders)
attempt("own: what a crash leaves")(core_left)
attempt("own: a device that hides")(nothing_in_place)
attempt("own: sockets of others by their list")(lambda: HOST["abstract"].encode() in read("/proc/net/unix"))
attempt("own: ports of others by their list")(lambda: f":{HOST['port']:04X} ".encode() in read("/proc/net/tcp"))
attempt("own: watch files of the host")(
    lambda: LIBC.inotify_add_watch(LIBC.inotify_init(), HOST["outside"].encode(), 0xFFF) >= 0
)


def in_a_group() -> list[str]:
    """Groups of the host that are named: inside all are the root."""
    return [line for line in read("/proc/self/cgroup").decode().split() if not line.endswith(":/")]


attempt("own: groups of the kernel")(
    lambda: os.path.exists("/sys/fs/cgroup") or unless(DENIED, "mount", 0, 0, 0, 0, 0) or in_a_group()
)

for over in (".git", ".git/config"):
    attempt(f"own: put something in the place of {over}")(
        lambda over=over: (
            does(os.symlink, "/tmp", "/workspace/instead")  # type: ignore[misc]
            and does(os.rename, "/workspace/instead", f"/workspace/{over}")
        )
    )
    if os.path.lexists("/workspace/instead"):
        os.unlink("/workspace/instead")

print(json.dumps(FOUND))
