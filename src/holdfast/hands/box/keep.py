"""The files that hold what a command printed: its beginning, and as much of the latest as there is room for."""

from __future__ import annotations

import fcntl
import os
from collections import deque

from holdfast.hands.box.stream import later_name

FILE_MAX = 64 * 1024 * 1024
"""Bytes of the beginning of one command's output that are kept."""

RECENT_MAX = 8 * 1024 * 1024
"""Bytes of the latest output that are kept beside the beginning."""

FOLDER_MAX = 256 * 1024 * 1024
"""Bytes of all such files at most: the oldest make room."""

FILES_MAX = 2_000
"""Such files at most."""

_PARTS = 8
"""How many files the latest output is spread over: the oldest of them goes when a new one begins."""


class Keep:
    """The files of one command, `path` and its successors. `saved` is how much of the beginning is kept."""

    def __init__(self, path: str, first_max: int = FILE_MAX, recent_max: int = RECENT_MAX) -> None:
        self._path = path
        self._left = first_max
        self._part = max(1 << 16, recent_max // _PARTS)
        self._later: deque[str] = deque()
        self._open: deque[int] = deque()
        self._position = 0
        self.saved = 0
        self.problem = ""

    def add(self, data: bytes) -> None:
        """More output."""
        try:
            while data and not self.problem:
                if not self._open or not self._left:
                    self._next()
                written = os.write(self._open[-1], data[: self._left])
                self._left -= written
                self._position += written
                if not self._later:
                    self.saved += written
                data = data[written:]
        except OSError as error:
            self.problem = f"its file holds the first {self.saved} bytes only: {error.strerror}"
            if not self._open:
                self.problem = f"it could not be kept in a file: {error.strerror}"

    def _next(self) -> None:
        """Begin the next file. It stays open, and locked, so that others who need room leave it alone."""
        path = self._path
        if self._open:
            path, self._left = later_name(self._path, self._position), self._part
            self._later.append(path)
            make_room(os.path.dirname(path))
            if len(self._later) > _PARTS:
                os.unlink(self._later.popleft())
                os.close(self._open[1])
                del self._open[1]
        if os.path.lexists(path):
            os.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
        self._open.append(fd)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def shut(self, *, drop: bool) -> None:
        """Nothing comes after this. With `drop` nothing is kept."""
        for fd in self._open:
            os.close(fd)
        if drop and self._open:
            try:
                os.unlink(self._path)
            except OSError:
                pass
        self._open.clear()


def make_room(folder: str) -> None:
    """Remove the oldest files when there is no room for another; never those of a command that runs."""
    with os.scandir(folder) as found:
        kept = [
            (entry.stat(follow_symlinks=False), entry.path) for entry in found if entry.is_file(follow_symlinks=False)
        ]
    kept.sort(key=lambda item: item[0].st_mtime_ns, reverse=True)
    total = FILE_MAX
    for number, (status, path) in enumerate(kept):
        total += status.st_size
        if (total > FOLDER_MAX or number >= FILES_MAX) and not _in_use(path):
            os.unlink(path)


def _in_use(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
