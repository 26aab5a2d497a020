"""Snapshots as a stream: a tar compressed with zstd, for hands without access to the snapshot store.

`ShadowShelf.export` writes a snapshot as a stream, `ShadowShelf.admit` makes a snapshot from one. Providers of remote
hands use the two to send a workspace to the hands, and to bring back their changes. Nothing is unpacked on the way:
each entry of an incoming stream becomes an object of the store, and only a restore makes a folder of it.

An untrusted stream may hold what a snapshot holds: files, folders and links, as links. `admit` refuses names that are
absolute or have `..`, entries below an entry that is not a folder, hard links to a file that did not come before,
sparse files, devices and pipes, more files or bytes than a workspace may have. Modes keep their nine permission bits,
owners and times are ignored, and entries named `.git` are left out.

Python 3.14 includes zstd; earlier versions need the extra `remote`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from holdfast.errors import CannotRunSafely, SnapshotFailed
from holdfast.repo.base import Restored, shown
from holdfast.repo.git import Blob, Library, Stopped
from holdfast.repo.objects import CHUNK, Adding, Pack, Row, encode_row, kept_mode, sort_key, tree_bytes

LEVEL = 3
WINDOW_LOG = 27
"""Memory that reading a stream may need, as a power of two: 128 MiB."""

_NAME_BYTES = 4096
_LINK_BYTES = 4096
_SPEECH_BYTES = 1 << 20


def zstd() -> Any:
    """Return the compression module. Raises `CannotRunSafely` if there is none."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd")
    with contextlib.suppress(ImportError):
        return importlib.import_module("backports.zstd")
    raise CannotRunSafely(
        "snapshots travel compressed with zstd, and this Python has none; nothing was changed: type "
        "pip install 'holdfast[remote]'"
    )


class Folder:
    """A folder of an incoming stream: its mode, and its entries by name."""

    def __init__(self, mode: int = stat.S_IFDIR | 0o755) -> None:
        self.mode = mode
        self.inner: dict[bytes, Folder | Row] = {}


class Arrival:
    """An incoming stream that becomes a snapshot. `run` reads it to its end."""

    def __init__(self, pack: Pack, library: Library, *, max_files: int, max_bytes: int, stop: threading.Event) -> None:
        self._pack, self._library = pack, library
        self._max_files, self._max_bytes = max_files, max_bytes
        self._stop = stop
        self._root = Folder()
        self._entries = 0
        self._adding = Adding(pack, library)
        self.files = self.bytes = 0

    def run(self, source: BinaryIO) -> bytes:
        """Read the stream; returns the name of the tree. Raises `SnapshotFailed` for an invalid stream."""
        module = zstd()
        options = {module.DecompressionParameter.window_log_max: WINDOW_LOG}
        try:
            with (
                module.ZstdFile(source, "rb", options=options) as plain,
                tarfile.open(
                    fileobj=_Bounded(plain, self._max_bytes, self._max_files), mode="r|", tarinfo=_Member
                ) as tar,
            ):
                for member in tar:
                    if self._stop.is_set():
                        raise Stopped
                    self._one(tar, member)
        except (tarfile.TarError, module.ZstdError, EOFError, UnicodeError, ValueError) as error:
            raise _refused(f"it is damaged or no tar ({error})") from None
        tree = self._tree(self._root)
        self._adding.flush()
        return tree

    def _one(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._entries += 1
        if self._entries > self._max_files:
            raise _refused(f"it has more than {self._max_files:,} entries")
        parts = _parts(member.name)
        if b".git" in parts:
            return
        if not parts:
            if not member.isdir():
                raise _refused("its top is no folder")
            return
        folder, name = self._folder(parts[:-1]), parts[-1]
        there = folder.inner.get(name)
        if member.isdir():
            if there is None:
                there = folder.inner[name] = Folder()
            if not isinstance(there, Folder):
                raise _refused(f"{shown(name)} is a folder and something else")
            there.mode = stat.S_IFDIR | member.mode & 0o777
            return
        if isinstance(there, Folder):
            raise _refused(f"{shown(name)} is a folder and something else")
        folder.inner[name] = self._leaf(tar, member, name)

    def _leaf(self, tar: tarfile.TarFile, member: tarfile.TarInfo, name: bytes) -> Row:
        self.files += 1
        if member.issym():
            target = os.fsencode(member.linkname)
            if not 0 < len(target) < _LINK_BYTES or b"\0" in target:
                raise _refused(f"the link {shown(name)} has no target that a link can have")
            self._count(len(target))
            return Row(stat.S_IFLNK, name, self._adding.offer("blob", target))
        if member.islnk():
            return self._earlier(member)._replace(name=name)
        if not member.isreg() or member.issparse():
            raise _refused(f"{shown(name)} is no plain file, folder or link")
        self._count(member.size)
        data = tar.extractfile(member)
        assert data is not None
        return Row(kept_mode(stat.S_IFREG | member.mode), name, self._content(data, member.size))

    def _earlier(self, member: tarfile.TarInfo) -> Row:
        """Return the target of a hard link: an earlier file of the same stream."""
        parts = _parts(member.linkname)
        found: Folder | Row | None = self._root
        for part in parts:
            found = found.inner.get(part) if isinstance(found, Folder) else None
        if not isinstance(found, Row) or found.is_link:
            raise _refused(f"{member.name!r} is another name of something that did not come before it")
        self._count(0)
        return found

    def _count(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self._max_bytes:
            raise _refused(f"it holds more than {self._max_bytes:,} bytes")

    def _folder(self, parts: tuple[bytes, ...]) -> Folder:
        at = self._root
        for part in parts:
            inner = at.inner.get(part)
            if inner is None:
                inner = at.inner[part] = Folder()
            if not isinstance(inner, Folder):
                raise _refused(f"something is below {shown(part)}, which is no folder")
            at = inner
        return at

    def _content(self, data: Any, size: int) -> bytes:
        if size <= CHUNK:
            return self._adding.offer("blob", _exactly(data, size))
        blob, start = self._pack.add_stream(lambda most: data.read(most), size)
        return self._adding.settle(blob, start)

    def _tree(self, top: Folder) -> bytes:
        """Add the trees of all folders, innermost first; the maximum length of a name bounds the depth."""
        rows = []
        for name, inner in top.inner.items():
            row = inner if isinstance(inner, Row) else Row(inner.mode, name, self._tree(inner))
            rows.append((sort_key(row), encode_row(row)))
        return self._adding.offer("tree", tree_bytes(rows))


_SPEECH = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _Member(tarfile.TarInfo):
    """An entry whose headers have a bounded size, because they are read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Return the entry of a header."""
        made = super().frombuf(buf, encoding, errors)
        if made.type in _SPEECH and made.size > _SPEECH_BYTES:
            raise _refused("an entry says too much about itself")
        return made


class _Bounded(io.RawIOBase):
    """A stream that raises an error when it yields more than files of that many bytes can."""

    def __init__(self, source: Any, max_bytes: int, max_files: int) -> None:
        self._source = source
        self._left = max_bytes + max_files * 8192 + CHUNK

    def read(self, size: int = -1) -> bytes:
        """Read some bytes."""
        data: bytes = self._source.read(size if size >= 0 else CHUNK)
        self._left -= len(data)
        if self._left < 0:
            raise _refused("it unpacks to more than a workspace may hold")
        return data


def _exactly(data: Any, size: int) -> bytes:
    got: bytes = data.read(size)
    if len(got) != size:
        raise _refused("it ends in the middle of a file")
    return got


def _parts(name: str) -> tuple[bytes, ...]:
    raw = os.fsencode(name)
    parts = tuple(part for part in raw.split(b"/") if part not in (b"", b"."))
    if raw.startswith(b"/") or b".." in parts or b"\0" in raw or len(raw) > _NAME_BYTES or len(parts) > 500:
        raise _refused(f"{shown(raw[:200])} is no name inside a workspace")
    if any(len(part) > 255 for part in parts):
        raise _refused(f"{shown(raw[:200])} has a part that is too long for a name")
    return parts


def _refused(why: str) -> SnapshotFailed:
    return SnapshotFailed(f"the stream was not taken as a snapshot: {why}; nothing was kept of it: send another one")


def departure(
    target: BinaryIO, entries: Iterator[tuple[bytes, Row]], blobs: Iterator[Blob], stop: threading.Event
) -> Restored:
    """Write a snapshot to a stream. `entries` are path and row, `blobs` those of all entries but folders, in order."""
    module = zstd()
    files = size = 0
    with (
        module.ZstdFile(target, "wb", level=LEVEL) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path, row in entries:
            if stop.is_set():
                raise Stopped
            member = tarfile.TarInfo(os.fsdecode(path))
            member.mode = row.mode & 0o777
            if row.is_folder:
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
                continue
            blob = next(blobs)
            files, size = files + 1, size + blob.size
            if row.is_link:
                member.type, member.mode = tarfile.SYMTYPE, 0o777
                member.linkname = os.fsdecode(b"".join(blob.chunks()))
                tar.addfile(member)
            else:
                member.size = blob.size
                content = _Readable(blob)
                tar.addfile(member, content)  # type: ignore[arg-type]
                content.finish()
    return Restored(files, size)


class _Readable:
    """A blob as a file that is read to its end."""

    def __init__(self, blob: Blob) -> None:
        self._chunks = blob.chunks()
        self._held = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Read some of the next bytes: never more than requested, and only as many as are available at once."""
        parts, left = [], size
        while left:
            if not self._held:
                self._held = memoryview(next(self._chunks))
            part = self._held[:left]
            parts.append(part)
            left -= len(part)
            self._held = self._held[len(part) :]
        return b"".join(parts)

    def finish(self) -> None:
        """Check the content against its name."""
        next(self._chunks, None)
