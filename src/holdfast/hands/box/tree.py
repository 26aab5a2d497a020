"""Ending a whole tree of processes, whatever its members do to get away."""

from __future__ import annotations

import os
import signal
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


def processes() -> dict[int, Entry]:
    """Every process that can be seen from here."""
    out: dict[int, Entry] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            entry = entry_of(int(name))
            if entry is not None:
                out[entry.pid] = entry
    return out


def entry_of(pid: int) -> Entry | None:
    """That process, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    fields = line[line.rindex(b")") + 2 :].split()
    return Entry(pid, int(fields[1]), int(fields[19]), fields[0].decode(), int(fields[21]), int(fields[17]))


def descendants(root: int, spare: frozenset[int] = frozenset()) -> list[Entry]:
    """The live descendants of `root`, without those of `spare` and what stems from them."""
    children: dict[int, list[Entry]] = {}
    for entry in processes().values():
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
    """Collect the dead; False when this process has no child left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def sweep(reap: Callable[[], bool], spare: frozenset[int] = frozenset(), limit_s: float = 10.0) -> set[int] | None:
    """End all descendants of this process but `spare`. Returns their pids, None when some would not die.

    `reap` collects dead children and says whether any child is left; this process must be a
    subreaper, or the first of its process namespace, so that no orphan escapes. Stopping all of them
    before killing any keeps a fork bomb from refilling the places of its dead.
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
