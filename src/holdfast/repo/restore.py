"""Restore a snapshot into an empty folder, and compare two snapshots.

As in reading, every step goes from an open folder to a name in it. Files are created and never opened through a link; a
name that would lead elsewhere is refused when its tree is read.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

from holdfast.errors import SnapshotFailed
from holdfast.repo.base import Change, Owner, Restored, no_file, shown
from holdfast.repo.git import Blob, Library, Stopped
from holdfast.repo.objects import Row
from holdfast.repo.plumbing.ignore import NAME, Ignoring
from holdfast.repo.walk import MAX_DEPTH, MAX_OPEN

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK_BYTES = 4096


class _Level:
    """A folder that is being filled: its own mode is set after its last entry."""

    def __init__(self, fd: int, row: Row) -> None:
        self.fd = fd
        self.row = row
        self.below: list[Row] = []


class Contents:
    """All folders of a snapshot, with their entries in the order in which they are written."""

    def __init__(self, library: Library, *, max_files: int, stop: threading.Event) -> None:
        self._library = library
        self._max_files = max_files
        self._stop = stop
        self.trees: dict[bytes, list[Row]] = {}

    def read(self, tree: bytes) -> None:
        """Read all folders, as many at a time as are adjacent."""
        wanted, entries = [tree], 0
        while wanted:
            if self._stop.is_set():
                raise Stopped
            for each, rows in zip(wanted, self._library.trees(wanted), strict=True):
                self.trees[each] = rows
                entries += len(rows)
            if entries > self._max_files:
                raise self._too_many()
            below = {row.id for each in wanted for row in self.trees[each] if row.is_folder}
            wanted = [each for each in below if each not in self.trees]

    def entries(self, tree: bytes) -> Iterator[tuple[bytes, Row]]:
        """Yield path and row: files and links first, then each folder before its entries."""
        entries = 0
        left = [(b"", Row(stat.S_IFDIR | 0o700, b"", tree))]
        while left:
            path, folder = left.pop()
            if path:
                yield path[:-1], folder
            rows = self.trees[folder.id]
            entries += len(rows)
            if entries > self._max_files:  # one tree may occur in many places
                raise self._too_many()
            left += [(path + row.name + b"/", row) for row in rows if row.is_folder]
            yield from ((path + row.name, row) for row in rows if not row.is_folder)

    def leaves(self, tree: bytes) -> Iterator[bytes]:
        """Return the object names of all entries but folders, in that order."""
        return (row.id for _, row in self.entries(tree) if not row.is_folder)

    def _too_many(self) -> SnapshotFailed:
        return SnapshotFailed(
            f"the snapshot has more than {self._max_files:,} files, and no such snapshot is ever kept here; use "
            "another one"
        )


class Restore:
    """One restore of a tree."""

    def __init__(
        self, library: Library, *, user: Owner | None, max_files: int, max_bytes: int, stop: threading.Event
    ) -> None:
        self._library = library
        self._user = user
        self._max_files, self._max_bytes = max_files, max_bytes
        self._stop = stop
        self._contents = Contents(library, max_files=max_files, stop=stop)
        self._blobs: Generator[Blob, None, None] = library.stream(())
        self.files = self.bytes = 0

    def run(self, tree: bytes, root: int) -> Restored:
        """Fill the empty folder that is open as `root`."""
        self._contents.read(tree)
        levels = [_Level(os.dup(root), Row(stat.S_IFDIR | 0o700, b"", tree))]
        self._blobs = self._library.stream(self._contents.leaves(tree))
        try:
            self._fill(levels[0])
            while levels:
                level = levels[-1]
                if not level.below:
                    self._finish(levels.pop())
                    continue
                levels.append(_make(level, level.below.pop()))
                if not level.below:  # so that a chain of folders needs two, whatever its length
                    del levels[-2]
                    self._finish(level)
                if len(levels) > MAX_OPEN:
                    raise SnapshotFailed("the snapshot has folders nested too deep to be restored; use another one")
                self._fill(levels[-1])
        finally:
            for level in levels:
                os.close(level.fd)
            self._blobs.close()
        return Restored(self.files, self.bytes)

    def _fill(self, level: _Level) -> None:
        if self._stop.is_set():
            raise Stopped
        rows = self._contents.trees[level.row.id]
        level.below = [row for row in rows if row.is_folder]
        files = [row for row in rows if not row.is_folder]
        for row in files:
            blob = next(self._blobs)
            self.files += 1
            self.bytes += blob.size
            if self.bytes > self._max_bytes:
                raise SnapshotFailed(
                    f"the snapshot is larger than {self._max_bytes:,} bytes, and no such snapshot is ever kept here; "
                    "use another one"
                )
            self._write(level.fd, row, blob)

    def _write(self, folder: int, row: Row, blob: Blob) -> None:
        if row.is_link:
            if blob.size > _LINK_BYTES:
                raise SnapshotFailed(f"the link {shown(row.name)} of the snapshot is too long; use another snapshot")
            os.symlink(b"".join(blob.chunks()), row.name, dir_fd=folder)
            if self._user:
                os.chown(row.name, *self._user, dir_fd=folder, follow_symlinks=False)
            return
        fd = os.open(row.name, _NEW, 0o600, dir_fd=folder)
        try:
            for chunk in blob.chunks():
                _write_all(fd, chunk)
            self._give(fd, row)
        finally:
            os.close(fd)

    def _give(self, fd: int, row: Row) -> None:
        if self._user:
            os.fchown(fd, *self._user)
        os.fchmod(fd, row.mode & 0o777)

    def _finish(self, level: _Level) -> None:
        try:
            self._give(level.fd, level.row)
        finally:
            os.close(level.fd)


def _make(parent: _Level, row: Row) -> _Level:
    os.mkdir(row.name, 0o700, dir_fd=parent.fd)
    return _Level(os.open(row.name, _FOLDER, dir_fd=parent.fd), row)


def _write_all(fd: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


def empty_folder(path: Path) -> int:
    """Open the folder to restore into. Raises `SnapshotFailed` unless it is empty, or can be created."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SnapshotFailed(
            f"{path} cannot be made to restore into: {error.strerror}; nothing was changed: name another folder"
        ) from None
    if os.listdir(fd):
        os.close(fd)
        raise SnapshotFailed(
            f"{path} is not empty, and a snapshot is restored into an empty folder only; nothing was changed: name "
            "another folder"
        )
    return fd


def compare(library: Library, before: bytes, after: bytes, stop: threading.Event) -> list[Change]:
    """Compare two trees. Identical folders are not entered."""
    out: list[tuple[bytes, str]] = []
    rules: dict[bytes, bytes] = {}

    def say(path: bytes, kind: str) -> None:
        out.append((path, kind))

    waiting: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", before, after)]
    while waiting:
        if stop.is_set():
            raise Stopped
        path, old, new = waiting.pop()
        if path.count(b"/") > MAX_DEPTH:
            raise SnapshotFailed("a snapshot has folders nested too deep to be compared; use another one")
        rows_old = {row.name: row for row in next(library.trees([old]))} if old else {}
        rows_new = {row.name: row for row in next(library.trees([new]))} if new else {}
        if (rule := rows_old.get(NAME)) is not None and not rule.is_folder and not rule.is_link:
            rules[path + NAME] = rule.id
        if (old is None or new is None) and not rows_old and not rows_new:
            say(path, "added" if old is None else "removed")
        for name in rows_old.keys() | rows_new.keys():
            waiting += _one(path + name, rows_old.get(name), rows_new.get(name), say)
    blobs = library.stream(rules.values()) if out else None
    ignoring = Ignoring({path: b"".join(next(blobs).chunks()) for path in rules} if blobs else {})
    if blobs:
        blobs.close()
    return [
        Change(shown(path), kind, ignoring.leaves_out_below(path))  # type: ignore[arg-type]
        for path, kind in sorted(out)
    ]


def _one(
    path: bytes, old: Row | None, new: Row | None, say: Callable[[bytes, str], None]
) -> list[tuple[bytes, bytes | None, bytes | None]]:
    """Record the difference of one name; returns the folders below to compare."""
    if old == new:
        return []
    if old and new and old.is_folder and new.is_folder:
        if old.mode != new.mode:
            say(path + b"/", "changed")
        return [(path + b"/", old.id, new.id)] if old.id != new.id else []
    if old and new and not old.is_folder and not new.is_folder:
        say(path, "changed")
        return []
    below: list[tuple[bytes, bytes | None, bytes | None]] = []
    for row, kind in ((old, "removed"), (new, "added")):
        if row is None:
            continue
        if row.is_folder:
            below.append((path + b"/", row.id, None) if kind == "removed" else (path + b"/", None, row.id))
        else:
            say(path, kind)
    return below


def list_files(library: Library, tree: bytes, max_files: int, stop: threading.Event) -> list[str]:
    """Return the paths of all files and links of a snapshot, ordered."""
    contents = Contents(library, max_files=max_files, stop=stop)
    contents.read(tree)
    return sorted(shown(path) for path, row in contents.entries(tree) if not row.is_folder)


def read_file(library: Library, tree: bytes, path: str, limit: int, stop: threading.Event) -> bytes:
    """Return at most `limit` bytes of a file of a snapshot. Raises `UsageError` if there is no such file."""
    parts = path.split("/")
    for depth, part in enumerate(parts, 1):
        rows, is_folder = next(library.trees([tree])), depth < len(parts)
        tree = next((row.id for row in rows if row.is_folder is is_folder and shown(row.name) == part), b"")
        if not tree:
            raise no_file(path)
    data = b""
    with closing(library.stream([tree])) as blobs:
        for chunk in next(blobs).chunks():
            if stop.is_set():
                raise Stopped
            data += chunk[: max(0, limit - len(data))]
    return data
