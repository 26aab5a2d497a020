"""A bell for directories: the kernel's inotify says that a file of a source changed, so that its duty is polled now.

It is a signal only (S27): a notice that is missed, or that the kernel does not offer, costs the wait until the next
sweep. No symbolic link is followed. A folder that is removed and made again is noticed by its parent.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from holdfast import globs
from holdfast.clock import Clock
from holdfast.sources.settings import DirectorySettings

FOLDERS_MAX = 1_000
"""Most folders of one source that are watched; the sweep finds what changes in others."""

PAUSE_S = 1.0
"""Shortest time between two rings for one source."""

MARGIN_S = 0.05
"""Wait after `settle_s`, since a file's time is not exact."""

_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE = 0x2, 0x4, 0x8, 0x40, 0x80, 0x100
_MOVE_SELF, _OVERFLOW, _IGNORED, _IS_DIR = 0x800, 0x4000, 0x8000, 0x4000_0000
_MASK = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _MOVE_SELF
_EVENT = struct.Struct("iIII")


@dataclass
class _Watch:
    """A directory of a source. `places` maps a watch of the kernel to a folder below it, None for its parent.

    It rings at `due_s`, and again at `later_s` for what changed meanwhile.
    """

    session_id: str
    trigger: str
    settings: DirectorySettings
    places: dict[int, str | None] = field(default_factory=dict)
    stale: bool = True
    due_s: float = math.inf
    later_s: float = math.inf
    rang_s: float = -math.inf


class SourceBell:
    """Watches the directories of duties and remembers which sources changed. See `brain.doors.Bell`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watches: list[_Watch] = []
        self._rung: dict[str, frozenset[str]] = {}
        self._news = anyio.Event()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._added: set[int] = set()

    def watch(self, session_id: str, directories: Mapping[str, DirectorySettings]) -> None:
        """Watch these directories of a session, by trigger, and no others of it."""
        mine = {each.trigger: each for each in self._watches if each.session_id == session_id}
        if {name: each.settings for name, each in mine.items()} != directories:
            kept = [each for each in mine.values() if directories.get(each.trigger) == each.settings]
            new = [_Watch(session_id, name, each) for name, each in directories.items() if name not in
                   {each.trigger for each in kept}]  # fmt: skip
            self._watches = [each for each in self._watches if each.session_id != session_id] + kept + new
        self.answered(session_id, self.rung(session_id) - directories.keys())
        for each in self._watches:
            each.stale |= each.session_id == session_id and "" not in each.places.values()  # it may be there again
        self._news.set()

    def rung(self, session_id: str) -> frozenset[str]:
        """Return the triggers of a session whose sources changed."""
        return self._rung.get(session_id, frozenset())

    def answered(self, session_id: str, triggers: frozenset[str]) -> None:
        """Forget the rings of these triggers."""
        left = self.rung(session_id) - triggers
        self._rung = {key: each for key, each in self._rung.items() if key != session_id}
        if left:
            self._rung[session_id] = left

    def waiting(self) -> list[str]:
        """Return the sessions with sources that changed."""
        return list(self._rung)

    async def run(self, stir: Callable[[], None]) -> None:
        """Listen until cancelled, and call `stir` at each ring. Returns at once if the kernel has no notices."""
        with suppress(AttributeError):  # no inotify on this system
            self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            return
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen)
                while True:
                    self._news = anyio.Event()
                    for each in self._watches:
                        self._look(each, stir)
                    used = {place for each in self._watches for place in each.places}
                    for place in self._added - used:
                        self._libc.inotify_rm_watch(self._fd, place)
                    self._added = used
                    next_s = min((each.due_s for each in self._watches), default=math.inf)
                    with anyio.move_on_after(max(0.0, next_s - self._clock.monotonic_s())):
                        await self._news.wait()
        finally:
            os.close(self._fd)

    async def _listen(self) -> None:
        while True:
            await anyio.wait_readable(self._fd)
            with suppress(BlockingIOError):
                raw, at = os.read(self._fd, 65_536), 0
                while at < len(raw):
                    place, mask, _, length = _EVENT.unpack_from(raw, at)
                    name = os.fsdecode(raw[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
                    at += _EVENT.size + length
                    for each in self._watches:
                        self._heard(each, place, mask, name)
            self._news.set()

    def _heard(self, watch: _Watch, place: int, mask: int, name: str) -> None:
        """Take a notice of the kernel: about the names of folders, or about a file that may count."""
        if place not in watch.places and not mask & _OVERFLOW:
            return
        folder = watch.places.get(place)
        if mask & _IGNORED:
            del watch.places[place]
        if folder is None and not mask & (_OVERFLOW | _IGNORED):
            if name != os.path.basename(watch.settings.path):
                return
            watch.stale = True
        elif mask & (_OVERFLOW | _IGNORED | _MOVE_SELF | _IS_DIR):
            watch.stale = True
        elif (
            mask & _MOVED_FROM
            or name.startswith(".")
            or not globs.matches(os.path.join(folder or "", name), (watch.settings.glob,))
        ):
            return
        self._changed(watch)

    def _changed(self, watch: _Watch) -> None:
        """Ring once the change has settled."""
        now_s, settle_s = self._clock.monotonic_s(), watch.settings.settle_s
        at_s = now_s + settle_s + MARGIN_S if settle_s else now_s
        if watch.due_s == math.inf:
            watch.due_s = max(at_s, watch.rang_s + PAUSE_S)
        elif settle_s:
            watch.later_s = at_s

    def _look(self, watch: _Watch, stir: Callable[[], None]) -> None:
        """Watch folders that are new, and ring if it is time. A new folder may have files that no notice was about."""
        if watch.stale:
            watch.stale, known = False, {*watch.places}
            watch.places = dict(self._places(watch.settings.path))
            if watch.places.keys() - known:
                self._changed(watch)
        now_s = self._clock.monotonic_s()
        if now_s >= watch.due_s:
            again = now_s + MARGIN_S / 2 < watch.later_s < math.inf  # what changed before has settled, too
            watch.rang_s, watch.due_s = now_s, max(watch.later_s, now_s + PAUSE_S) if again else math.inf
            watch.later_s = math.inf
            self._rung[watch.session_id] = self.rung(watch.session_id) | {watch.trigger}
            stir()

    def _places(self, path: str) -> Iterator[tuple[int, str | None]]:
        """Watch a directory, the folders in it, and its parent. A folder is watched as it was opened, not by name."""
        with suppress(OSError):
            for count, (folder, inside, _, descriptor) in enumerate(os.fwalk(path, follow_symlinks=False)):
                if count == FOLDERS_MAX:
                    break
                inside[:] = [each for each in inside if not each.startswith(".")]
                if (place := self._add(descriptor)) >= 0:
                    yield place, os.path.relpath(folder, path).removeprefix(".")
        with suppress(OSError):
            parent = os.open(os.path.dirname(path), os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if (place := self._add(parent)) >= 0:
                    yield place, None
            finally:
                os.close(parent)

    def _add(self, descriptor: int) -> int:
        """Return the kernel's watch of an open folder, negative if it allows no more."""
        return int(self._libc.inotify_add_watch(self._fd, os.fsencode(f"/proc/self/fd/{descriptor}"), _MASK))
