"""A limit on the growth of some folders, in bytes and in files, that needs no support by the file system.

The watch often checks how far the free space and free inodes of the disk fell, which is cheap. A separate process
counts the folders only when they fell by half of the remaining allowance, and now and then otherwise, since other
processes may free space that these hands use. Growth is measured from the first count ever made for the session, kept
in a file, so that new hands do not get the full allowance again.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from holdfast.hands.box import processes
from holdfast.hands.box.supervisor import usage

LEAST = (1 << 20, 64)
"""Bytes and inodes below which a change is ignored."""

QUICK_S = 0.05
SLOW_S = 30.0
"""Seconds between two checks of the free space, and between two routine counts."""

SHARE = 20.0
"""A routine count waits this many times as long as the last count took."""

FULL = 64 << 20
"""Bytes free on the disk below which a call that grows is ended, whatever the count says."""


class Quota:
    """The state of one watch. `over` names the exceeded limit: `disk` or `inodes`.

    `pids` returns the processes of the sandbox, which may hold deleted files open.
    """

    def __init__(self, holding: dict[str, Any], pids: Callable[[], tuple[int, ...]]) -> None:
        self._pids = pids
        self._paths = [str(path) for path in holding["paths"]]
        self._most = (holding["disk_bytes"], holding["inodes"])
        self._kept = str(holding["baseline"])
        self._on = holding["disk_bytes"] is not None and bool(self._paths)
        self._base = _load(self._kept) if self._on else None
        self._grown = (0, 0)
        self._low: tuple[int, int] | None = None
        self._deep: bool | None = None
        self._stale = False
        self._free = self._counting_free = self._read_free() if self._on else {}
        self._next_count = 0.0
        self._began = 0.0
        self._pid = 0
        self._said = b""
        self._looked = 0.0
        self.fd = -1
        self.over = ""

    def struck(self) -> None:
        """Reset after a call ended: the next one is judged by the state found then."""
        self.over = ""
        self._low = None
        self._stale = self.fd >= 0

    def rest(self) -> None:
        """Reset when nothing runs: a finished or running count is not the next call's doing."""
        self.over = ""
        self._stale = self.fd >= 0

    def look(self, now: float, busy: bool) -> float | None:
        """Check the free space, and start a count if there is a reason. Returns the seconds until the next check."""
        if not self._on:
            return None
        if self.fd >= 0:
            return QUICK_S if busy else None
        if now >= self._looked + QUICK_S:
            self._looked = now
            if self._base is None or self._low is None or self._suspicious() or (busy and now >= self._next_count):
                self._count(now)
        return QUICK_S if busy else None

    def _suspicious(self) -> bool:
        fell = self._fell()
        for took, most, grown, least in zip(fell, self._most, self._grown, LEAST, strict=True):
            if took > max(least, (most - grown) // 2):
                return True
        return fell[0] > LEAST[0] and min(free for free, _ in self._read_free().values()) < FULL

    def _fell(self) -> tuple[int, int]:
        """Return the loss of free bytes and inodes of the disks since the last count."""
        size = inodes = 0
        for device, (free, spare) in self._read_free().items():
            before = self._free.get(device, (free, spare))
            size += max(0, before[0] - free)
            inodes += max(0, before[1] - spare)
        return size, inodes

    def _read_free(self) -> dict[int, tuple[int, int]]:
        out = {}
        for path in self._paths:
            try:
                found, device = os.statvfs(path), os.stat(path).st_dev
            except OSError:
                continue
            out[device] = (found.f_bfree * found.f_frsize, found.f_ffree)
        return out

    # --- counting, in a child ---

    def _count(self, now: float) -> None:
        self._began = now
        self._counting_free = self._read_free()
        self._said = b""
        self.fd, inner = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _counted(self._paths, self._pids, inner)
        os.close(inner)
        os.set_blocking(self.fd, False)

    def hear(self) -> None:
        """Read the result of a count."""
        try:
            data = os.read(self.fd, 4096)
        except BlockingIOError:
            return
        self._said += data
        if data:
            return
        os.close(self.fd)
        self.fd = -1
        os.waitpid(self._pid, 0)
        now = time.monotonic()
        self._free = self._counting_free
        self._next_count = now + max(SLOW_S, (now - self._began) * SHARE)
        try:
            size, inodes, deep = json.loads(self._said)
        except ValueError:
            return
        if self._base is None:
            self._base = (size, inodes)
            _keep(self._kept, self._base)
        if self._stale:
            self._stale = False  # it measured another call
            return
        self._judge(size, inodes, deep)

    def _judge(self, size: int, inodes: int, deep: bool) -> None:
        """Set `over` if usage is above the limit and still grows: a call that frees space may go on.

        Folders nested too deep count against the call that runs when they are found first, however late that is.
        """
        assert self._base is not None
        found = self._grown = (size - self._base[0], inodes - self._base[1])
        deepened, self._deep = deep and self._deep is False, deep
        low = self._low or found
        self._low = (min(low[0], found[0]), min(low[1], found[1]))
        grows = [new > old + least for new, old, least in zip(found, low, LEAST, strict=True)]
        if found[0] > self._most[0] and grows[0]:
            self.over = "disk"
        elif (found[1] > self._most[1] and grows[1]) or deepened:
            self.over = "inodes"
        elif grows[0] and min((free for free, _ in self._free.values()), default=FULL) < FULL:
            self.over = "disk"


def _counted(paths: list[str], pids: Callable[[], tuple[int, ...]], out: int) -> None:
    """In the child: count, including deleted files that are held open, report, exit."""
    try:
        processes.die_with_parent(signal.SIGKILL)
        found = usage.disk(paths)
        nameless = usage.unlinked(pids(), {os.stat(path).st_dev for path in paths if os.path.isdir(path)})
        os.write(out, json.dumps([found.size + nameless, found.inodes, found.deep]).encode())
    finally:
        os._exit(0)


def _load(path: str) -> tuple[int, int] | None:
    try:
        with open(path, encoding="utf-8") as file:
            size, inodes = json.load(file)
    except (OSError, ValueError):
        return None
    return int(size), int(inodes)


def _keep(path: str, base: tuple[int, int]) -> None:
    """Save the first count for the next hands of the session. If that fails, they measure it again."""
    if not path:
        return
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(base, file)
        os.replace(path + ".new", path)
    except OSError:
        pass
