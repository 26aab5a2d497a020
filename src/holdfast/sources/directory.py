"""A directory as a source: its new and changed files.

Each poll looks at all files, so nothing depends on the order of their times or on the clock. The cursor is a digest for
each of `BUCKETS` groups of files; the files of a group whose digest differs are offered, and the caller knows most of
them by their keys. A file that is still being written is left for a later poll.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import anyio.to_thread

from holdfast import globs
from holdfast.clock import Clock
from holdfast.errors import SourceError
from holdfast.sources.base import Offered, Polled, Rejected, digest, event
from holdfast.sources.settings import DirectorySettings

BUCKETS = 256
FILES_MAX = 100_000
"""Most files of a directory."""

CONTENT_BYTES = 16_000_000
"""Largest file whose content counts beside its size and times."""


class _File(NamedTuple):
    """A file as the sweep saw it, and its group. `mark` identifies this version of it in a cursor."""

    name: str
    path: str
    group: int
    mark: str
    changed_ns: int


class DirectorySource:
    """The files of a directory."""

    def __init__(self, settings: DirectorySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`."""
        return await anyio.to_thread.run_sync(self._poll, cursor, limit)

    def _poll(self, cursor: str, limit: int) -> Polled:
        whole, _, rest = cursor.partition("|")
        groups, marks = whole.split(",") if whole else [""] * BUCKETS, set(rest.split())
        files: list[list[_File]] = [[] for _ in groups]
        for file in self._sweep():
            files[file.group].append(file)
        taken: list[Offered | Rejected] = []
        more, kept = False, set[str]()
        for place, group in enumerate(files):
            now = digest(*sorted(file.mark for file in group))[:12] if group else ""
            if now == groups[place]:
                continue
            handled = {file.mark for file in group} & marks
            for file in group:
                if file.mark in handled:
                    continue
                if len(taken) == limit:
                    more = True
                    break
                found = self._event(file)
                if found is not None:
                    taken.append(found)
                    handled.add(file.mark)
            if len(handled) == len(group):
                groups[place] = now
            else:
                kept |= handled
        events = tuple(each for each in taken if isinstance(each, Offered))
        rejected = tuple(each for each in taken if isinstance(each, Rejected))
        return Polled(events, f"{','.join(groups)}|{' '.join(sorted(kept))}", more, rejected)

    def _sweep(self) -> Iterator[_File]:
        """Find the files that count, in the order of their names."""
        count, folders = 0, [self._settings.path]
        root = os.path.join(self._settings.path, "")
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    inside = sorted((each for each in entries if not each.name.startswith(".")), key=lambda e: e.name)
            except OSError as error:
                if folder != self._settings.path:
                    continue  # removed, or not ours to read
                raise SourceError(
                    f"the directory {folder!r} cannot be read: {error.strerror}", retryable=True
                ) from error
            for entry in inside:
                name = entry.path[len(root) :]
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False) and globs.matches(name, (self._settings.glob,)):
                    with contextlib.suppress(FileNotFoundError):
                        yield _file(name, entry.path, entry.stat(follow_symlinks=False))
                        count += 1
            if count > FILES_MAX:
                raise SourceError(
                    f"the directory {self._settings.path!r} has more than {FILES_MAX} files; nothing was taken. Limit "
                    "them with a glob, or move files away once they are handled",
                    retryable=False,
                )

    def _event(self, file: _File) -> Offered | Rejected | None:
        """Return the event of a file, None if it is still being written or gone."""
        waits, shown = self._settings.settle_s > 0, os.fsencode(file.name).decode(errors="replace")
        if waits and 0 <= self._clock.now_us() * 1_000 - file.changed_ns < self._settings.settle_s * 1e9:
            return None
        try:
            descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Rejected(digest(shown, file.mark), f"the file cannot be read: {error.strerror}", shown)
        with open(descriptor, "rb") as opened:
            found = os.fstat(descriptor)
            if waits and (_file(file.name, file.path, found).mark != file.mark or _is_being_written(descriptor)):
                return None
            read = hashlib.file_digest(opened, "sha256").hexdigest() if found.st_size <= CONTENT_BYTES else ""
            opened.seek(max(0, found.st_size - self._settings.tail_bytes))
            tail = opened.read(self._settings.tail_bytes).decode(errors="replace")
            if waits and os.fstat(descriptor).st_mtime_ns != found.st_mtime_ns:
                return None
        data: dict[str, Any] = {"path": shown, "size": found.st_size}
        data |= {"sha256": read} if read else {}
        data |= {"tail": tail} if self._settings.tail_bytes else {}
        key = digest(shown, found.st_size, found.st_mtime_ns, read or found.st_ino)
        return event(key, data, found.st_mtime_ns // 1_000)


def _file(name: str, path: str, found: os.stat_result) -> _File:
    raw = name.encode(errors="surrogateescape")
    version = b"%d %d %d %d " % (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    mark = hashlib.blake2b(version + raw, digest_size=6).hexdigest()
    return _File(name, path, zlib.crc32(raw) % BUCKETS, mark, max(found.st_mtime_ns, found.st_ctime_ns))


def _is_being_written(descriptor: int) -> bool:
    """True if a process has the file open for writing, as far as the kernel tells: it then refuses a read lease."""
    with contextlib.suppress(OSError):
        # A process that opens the file at this moment signals the holder of the lease; this signal is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return True
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
