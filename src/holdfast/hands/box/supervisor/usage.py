"""Resource usage of a sandbox: memory and number of its processes, and disk space of its folders."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from holdfast.hands.box import processes

DEEPEST = 1000
"""Levels of folders that are counted; deeper nesting counts as over every limit."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk(NamedTuple):
    """Disk usage of folders: allocated bytes, and number of files and folders.

    `deep` is set if some were nested too deep to count.
    """

    size: int
    inodes: int
    deep: bool = False


class Held(NamedTuple):
    """Processes of one call or of all: their bytes of memory and number of threads."""

    memory: int
    tasks: int
    pids: tuple[int, ...]


def disk(paths: list[str], pause: float = 0.0) -> Disk:
    """Walk those folders without following a link. A file with several names counts once.

    `pause` is the share of time left to others: 1.0 sleeps as long as it works.
    """
    seen: set[tuple[int, int]] = set()
    size = inodes = 0
    deep = False
    for path in paths:
        try:
            fd = os.open(path, _FLAGS)
        except OSError:
            continue
        one = _walk(fd, seen, pause)
        size, inodes, deep = size + one.size, inodes + one.inodes, deep or one.deep
    return Disk(size, inodes, deep)


def _walk(top: int, seen: set[tuple[int, int]], pause: float) -> Disk:
    """Walk depth first by descriptors: a folder that is replaced by a link meanwhile is not followed."""
    size = inodes = 0
    deep = False
    device = os.fstat(top).st_dev
    stack: list[tuple[int, list[str]]] = [(top, [])]
    fresh = True
    while stack:
        fd, folders = stack[-1]
        if fresh:
            began = time.monotonic()
            added, count = _listed(fd, folders, seen)
            size, inodes = size + added, inodes + count
            if pause:
                time.sleep((time.monotonic() - began) * pause)
        fresh = False
        if not folders:
            os.close(fd)
            stack.pop()
            continue
        name = folders.pop()
        if len(stack) >= DEEPEST:
            deep = True
            folders.clear()
            continue
        try:
            inner = os.open(name, _FLAGS, dir_fd=fd)
        except OSError:
            continue
        if os.fstat(inner).st_dev != device:
            os.close(inner)
            continue
        stack.append((inner, folders := []))
        fresh = True
    return Disk(size, inodes, deep)


def _listed(fd: int, folders: list[str], seen: set[tuple[int, int]]) -> tuple[int, int]:
    """Measure one folder's direct content; appends the names of its folders to `folders`."""
    size = count = 0
    try:
        with os.scandir(fd) as found:
            for entry in found:
                count += 1
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif status.st_nlink > 1:
                    if (status.st_dev, status.st_ino) in seen:
                        count -= 1
                        continue
                    seen.add((status.st_dev, status.st_ino))
                size += status.st_blocks * 512
    except OSError:
        pass
    return size, count


def unlinked(pids: tuple[int, ...], devices: set[int]) -> int:
    """Return the bytes on those devices of deleted files that those processes hold open."""
    seen: dict[tuple[int, int], int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                status = os.stat(f"{folder}/{name}")
            except OSError:
                continue
            if status.st_nlink == 0 and status.st_dev in devices:
                seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def written(pids: tuple[int, ...]) -> int:
    """Return the bytes that those processes have written to disks, as far as permissions allow reading it."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", encoding="ascii") as file:
                lines = dict(line.split(": ") for line in file.read().splitlines())
        except (OSError, ValueError):
            continue
        total += int(lines.get("write_bytes", 0))
    return total


class Tree:
    """One scan of the processes of a sandbox: all descendants of its supervisor except its helpers."""

    def __init__(self, supervisor: int, spare: frozenset[int]) -> None:
        self._entries = processes.list_all()
        self._children: dict[int, list[int]] = {}
        for entry in self._entries.values():
            self._children.setdefault(entry.parent, []).append(entry.pid)
        self.all = self._sum([pid for pid in self._below(supervisor, spare) if pid != supervisor])

    def below(self, pid: int) -> Held:
        """Return that process and all its descendants."""
        return self._sum(self._below(pid, frozenset()))

    def pid_of(self, inner: int) -> int:
        """Return the process with that pid inside the sandbox, 0 if there is none."""
        for pid in self.all.pids:
            if _inner(pid) == inner:
                return pid
        return 0

    def _below(self, root: int, spare: frozenset[int]) -> list[int]:
        out, left = [], [root]
        while left:
            pid = left.pop()
            if pid in self._entries and pid not in spare:
                out.append(pid)
                left.extend(self._children.get(pid, ()))
        return out

    def _sum(self, pids: list[int]) -> Held:
        """Sum up processes. Zombies count too: each takes the place of a new process."""
        found = [self._entries[pid] for pid in pids]
        memory = sum(entry.pages for entry in found) * _PAGE
        live = tuple(entry.pid for entry in found if entry.state not in "ZX")
        return Held(memory, sum(entry.tasks for entry in found), live)


def available(path: str = "/proc/meminfo") -> tuple[int, int]:
    """Return this machine's available and total bytes of memory; zeros if unknown."""
    found = {}
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in ("MemTotal", "MemAvailable"):
                    found[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return found.get("MemAvailable", 0), found.get("MemTotal", 0)


def proportional(pids: tuple[int, ...]) -> int:
    """Return the bytes of memory with shared memory counted once; resident memory where that is unknown."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith(b"Pss:")) * 1024
        except (OSError, StopIteration):
            entry = processes.entry_of(pid)
            total += 0 if entry is None else entry.pages * _PAGE
    return total


def _inner(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return int(line.split()[-1])
    except OSError:
        pass
    return 0
