"""Linux processes: find, signal, pause, and end process trees; prctl; file locks that die with their holder.

Pausing uses signals, not the freezer of control groups: it is the same on every machine, and the agent can still end a
call meanwhile. A process that was already stopped stays stopped."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import NamedTuple


class Entry(NamedTuple):
    """One process as /proc shows it. `start` tells it from a later process with the same pid.

    `pages` of memory are resident; `tasks` is the number of its threads.
    """

    pid: int
    parent: int
    start: int
    state: str
    pages: int
    tasks: int


def list_all() -> dict[int, Entry]:
    """Return every visible process."""
    out: dict[int, Entry] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            entry = entry_of(int(name))
            if entry is not None:
                out[entry.pid] = entry
    return out


def entry_of(pid: int) -> Entry | None:
    """Return that process, None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    fields = line[line.rindex(b")") + 2 :].split()
    return Entry(pid, int(fields[1]), int(fields[19]), fields[0].decode(), int(fields[21]), int(fields[17]))


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[Entry]:
    """Return the live descendants of `root`, except `spare` and their descendants."""
    children: dict[int, list[Entry]] = {}
    for entry in list_all().values():
        children.setdefault(entry.parent, []).append(entry)
    out: list[Entry] = []
    left = [root]
    while left:
        for entry in children.get(left.pop(), ()):
            if entry.pid not in spare:
                left.append(entry.pid)
                if entry.state not in "ZX":
                    out.append(entry)
    return out


def send(entry: Entry, number: int) -> None:
    """Signal exactly that process, never a later one with its pid."""
    try:
        handle = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return
    except OSError:
        handle = -1
    try:
        now = entry_of(entry.pid)
        if now is None or now.start != entry.start:
            return
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(entry.pid, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        if handle >= 0:
            os.close(handle)


def reap() -> bool:
    """Collect dead children; False if this process has no child left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def sweep(reap: Callable[[], bool], spare: frozenset[int] = frozenset(), limit_s: float = 10.0) -> set[int] | None:
    """End all descendants of this process except `spare`. Returns their pids, None if some would not die.

    `reap` collects dead children and returns True if any child is left; this process must be a subreaper, or the first
    of its process namespace, so that no orphan escapes. Stopping all of them before killing any keeps a fork bomb from
    replacing its dead.
    """
    seen: set[int] = set()
    end = time.monotonic() + limit_s
    while reap():
        found = _freeze(spare, end)
        seen.update(entry.pid for entry in found)
        for entry in found:
            send(entry, signal.SIGKILL)
        if not found and (spare or not reap()):
            return seen
        if time.monotonic() > end:
            return None
        time.sleep(0.001)
    return seen


def _freeze(spare: frozenset[int], end: float) -> list[Entry]:
    stopped: dict[tuple[int, int], Entry] = {}
    while True:
        found = descendants(os.getpid(), spare)
        fresh = [entry for entry in found if (entry.pid, entry.start) not in stopped]
        if not fresh or time.monotonic() > end:
            return list(stopped.values())
        for entry in fresh:
            send(entry, signal.SIGSTOP)
            stopped[entry.pid, entry.start] = entry


LIMIT_S = 5.0
"""Seconds that all running processes may take to be gone."""

STEP_S = 0.001
"""Seconds between checks for processes that were told to stop and have not yet."""


class Pause:
    """Paused processes. `since` is the start of the pause, None without one."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._held: dict[tuple[int, int], Entry] = {}

    def begin(self, spare: frozenset[int]) -> bool:
        """Stop all descendants of this process except `spare`. False if new ones appear faster."""
        if self.since is not None:
            return True
        self.since = time.monotonic()
        others: set[tuple[int, int]] = set()
        while True:
            found = descendants(os.getpid(), spare)
            fresh = [
                entry
                for entry in found
                if (entry.pid, entry.start) not in self._held and (entry.pid, entry.start) not in others
            ]
            if not fresh:
                if all(entry.state in "Tt" for entry in found):
                    return True
                time.sleep(STEP_S)
            if time.monotonic() > self.since + LIMIT_S:
                self.end()
                return False
            for entry in fresh:
                if entry.state == "T":
                    others.add((entry.pid, entry.start))
                else:
                    send(entry, signal.SIGSTOP)
                    self._held[entry.pid, entry.start] = entry

    def end(self) -> float:
        """Resume all of them. Returns the length of the pause in seconds."""
        if self.since is None:
            return 0.0
        for entry in self._held.values():
            send(entry, signal.SIGCONT)
        self._held.clear()
        seconds = time.monotonic() - self.since
        self.since = None
        return seconds

    def free(self, pid: int) -> None:
        """Resume one of them."""
        for key in [key for key in self._held if key[0] == pid]:
            send(self._held.pop(key), signal.SIGCONT)


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
    """Adopt every orphan among our descendants, so that none can escape by forking twice."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep processes of our uid from tracing us, reading our memory, or opening our descriptors. Ends at exec."""
    _prctl(_PR_SET_DUMPABLE, 0)


def end_first() -> None:
    """Make this process the kernel's first choice when memory runs out. Its memory is readable for a moment."""
    _prctl(_PR_SET_DUMPABLE, 1)  # root owns the /proc files of a process with hidden memory
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
    """Receive this signal when the thread that forked us ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def hold_lock(path: str) -> int:
    """Lock a file for as long as the returned descriptor is open, that is, until this process dies.

    An open-file-description lock: closing another descriptor of the same file does not drop it. Raises
    `BlockingIOError` if another holder lives.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, f"{path} is locked") from None
    return fd


def is_locked(path: str) -> bool:
    """True while some process holds that lock; False if the file does not exist."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)
