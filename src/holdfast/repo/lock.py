"""Who may touch the store: a lock that the kernel holds, shared by those who add, alone for who removes.

It ends with the last descriptor of its opening. The git processes that we start inherit it, so a git
that outlives its killed parent still keeps others from removing what it works on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import SnapshotFailed

_FLOCK = struct.Struct("@hhqqi0q")
_PAUSE_S = 0.02


class Stopped(Exception):
    """Nobody waits for the answer any more."""


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


@contextmanager
def held(path: Path, *, alone: bool, wait_s: float, stop: threading.Event) -> Iterator[int]:
    """Hold the lock for the block; gives its descriptor, for children to inherit.

    Raises `SnapshotFailed` when it is not free within `wait_s`, `Stopped` when `stop` is set.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        tries = 0
        while not _try(fd, fcntl.F_WRLCK if alone else fcntl.F_RDLCK):
            if stop.wait(_PAUSE_S):
                raise Stopped
            tries += 1
            if tries * _PAUSE_S >= wait_s:
                raise SnapshotFailed(
                    f"another process has kept {path} locked for {wait_s:g} s; what was kept before is safe: see who "
                    f"it is (`fuser {path}`), and try again when it has ended"
                )
        yield fd
    finally:
        os.close(fd)


@contextmanager
def held_if_free(path: Path) -> Iterator[int | None]:
    """Hold the lock alone for the block, or give None at once when somebody else has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield fd if _try(fd, fcntl.F_WRLCK) else None
    finally:
        os.close(fd)
