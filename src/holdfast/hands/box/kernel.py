"""The few kernel doors that Python has no name for: prctl, file locks that die with their holder."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

_FLOCK = "hhqqi0q"
"""struct flock on 64-bit Linux."""


_LIBC = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def become_subreaper() -> None:
    """Adopt every orphan among our descendants, so that none can get away by forking twice."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """No process of our own uid may trace us, read our memory or open our descriptors. Ends at exec."""
    _prctl(_PR_SET_DUMPABLE, 0)


def end_first() -> None:
    """Be the first to be ended when memory runs out, with all that we become. Our memory is open for a moment."""
    _prctl(_PR_SET_DUMPABLE, 1)  # what is hidden belongs to root, also in /proc
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)  # every command waits for this
        try:
            os.write(fd, b"500")
        finally:
            os.close(fd)
    except OSError:
        pass
    _prctl(_PR_SET_DUMPABLE, 0)


def die_with_parent(signal_number: int) -> None:
    """Get this signal when the thread that forked us ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def hold_lock(path: str) -> int:
    """Lock a file for as long as the returned descriptor is open, that is until we die.

    An open-file-description lock: closing another descriptor of the same file does not drop it.
    Raises `BlockingIOError` when another holder lives.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, f"{path} is locked") from None
    return fd


def is_locked(path: str) -> bool:
    """True while some process holds that lock; False when the file is not there."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)
