"""File locks that the kernel holds for a process, and releases however the process ends.

`try_lock` takes an open-file-description lock: it ends with the last descriptor of its opening (at close, at exit, at
SIGKILL; not at SIGSTOP), so a child that inherits the descriptor keeps it. `try_flock` takes a BSD lock, which also
works on a folder and on a file that is open for reading only. The two kinds do not see each other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLOCK = struct.Struct("@hhqqi0q")  # struct flock; start and length 0: the whole file


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock an open file; False while another opening holds a conflicting lock."""
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def is_locked(fd: int) -> bool:
    """True while another opening of the file holds an open-file-description lock."""
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[int | None]:
    """Hold the lock of a file, made if absent, for the block. Yields its descriptor, or None if the lock is taken."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd if try_lock(fd, shared=shared) else None
    finally:
        os.close(fd)


def try_flock(fd: int) -> bool:
    """Take the exclusive BSD lock of an open file or folder; False while another opening holds one."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_at(fd: int, path: Path) -> bool:
    """True if `path` still names the open file. Another process may have replaced it before it was locked."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
