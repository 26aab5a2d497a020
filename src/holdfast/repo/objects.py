"""Git's objects and packs, as bytes: names, trees, and packs that are written without git.

SHA-256 names: with SHA-1, an agent could make two files with the same name, which a snapshot would treat as one. Trees
hold all nine permission bits, whereas git records only whether a file is executable; git reads such trees as its own,
and only we take files out of them.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

ID_BYTES = 32
LEVEL = 1
"""Compression level. Snapshots are written far more often than read, and folding compresses packs again."""

CHUNK = 1 << 20

_KINDS = {"commit": 1, "tree": 2, "blob": 3}
_PACK_HEADER = b"PACK\0\0\0\2"


class Row(NamedTuple):
    """One entry of a tree: its type and permission bits, its name, and the name of its object."""

    mode: int
    name: bytes
    id: bytes

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


def kept_mode(mode: int) -> int:
    """Return the part of a mode that snapshots keep: no set-user-id, set-group-id, or sticky bit, no link bits."""
    return stat.S_IFLNK if stat.S_ISLNK(mode) else stat.S_IFMT(mode) | mode & 0o777


def object_hash(kind: str, size: int) -> hashlib._Hash:
    """Return the hash of an object, to be updated with its bytes."""
    return hashlib.sha256(f"{kind} {size}\0".encode())


def object_id(kind: str, data: bytes) -> bytes:
    """Return the name of an object."""
    digest = object_hash(kind, len(data))
    digest.update(data)
    return digest.digest()


def encode_row(row: Row) -> bytes:
    """Encode one entry of a tree object."""
    return b"%o %b\0%b" % (row.mode, row.name, row.id)


def sort_key(row: Row) -> bytes:
    """Return the sort key: git orders a folder as if its name ended in a slash."""
    return row.name + b"/" if row.is_folder else row.name


def decode_tree(data: bytes) -> list[Row]:
    """Return the entries of a tree object. Raises `ValueError` for one that we cannot have written.

    A name that would lead out of its folder, or into a `.git`, is refused here.
    """
    rows, at = [], 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        row = Row(int(data[at:space], 8), data[space + 1 : end], data[end + 1 : end + 1 + ID_BYTES])
        at = end + 1 + ID_BYTES
        known = stat.S_ISDIR(row.mode) or stat.S_ISREG(row.mode) or row.is_link
        if not known or len(row.id) != ID_BYTES or b"/" in row.name or row.name in (b"", b".", b"..", b".git"):
            raise ValueError(f"{row.name!r} with mode {row.mode:o}")
        rows.append(row)
    return rows


def entry_header(kind: str, size: int) -> bytes:
    """Header of an object in a pack: its kind and size."""
    byte = (_KINDS[kind] << 4) | (size & 15)
    size >>= 4
    out = bytearray()
    while size:
        out.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    out.append(byte)
    return bytes(out)


class Changing(Exception):
    """A file became shorter while it was read."""


class Pack:
    """A pack that is being written, in a file without a name: a killed process leaves nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder, buffering=CHUNK)
        self._file.write(_PACK_HEADER + bytes(4))
        self.count = 0

    def add(self, kind: str, data: bytes) -> None:
        """Add an object from memory."""
        self._file.write(entry_header(kind, len(data)))
        self._file.write(zlib.compress(data, LEVEL))
        self.count += 1

    def add_file(self, fd: int, size: int) -> tuple[bytes, int]:
        """Add the next `size` bytes of a file, without holding them. Returns its name and its position in the pack.

        Raises `Changing`, with nothing added, if there are fewer.
        """
        return self.add_stream(lambda most: os.read(fd, most), size)

    def add_stream(self, read: Callable[[int], bytes], size: int) -> tuple[bytes, int]:
        """Do the same with the output of `read`: at most that many bytes each time, none at the end."""
        start = self._file.tell()
        digest, squeeze = object_hash("blob", size), zlib.compressobj(LEVEL)
        self._file.write(entry_header("blob", size))
        left = size
        while left:
            chunk = read(min(left, CHUNK))
            if not chunk:
                self._cut(start)
                raise Changing
            left -= len(chunk)
            digest.update(chunk)
            self._file.write(squeeze.compress(chunk))
        self._file.write(squeeze.flush())
        self.count += 1
        return digest.digest(), start

    @property
    def size(self) -> int:
        """Bytes of the finished pack, 0 for one without objects."""
        return os.fstat(self._file.fileno()).st_size if self.count else 0

    def take_back(self, start: int) -> None:
        """Drop the last object, which begins at that position."""
        self._cut(start)
        self.count -= 1

    def _cut(self, start: int) -> None:
        self._file.seek(start)
        self._file.truncate()

    def finish(self) -> int:
        """Complete the pack; returns its file, at the beginning. It is closed by `close`."""
        self._file.seek(len(_PACK_HEADER))
        self._file.write(self.count.to_bytes(4))
        self._file.seek(0)
        digest = hashlib.sha256()
        while chunk := self._file.read(CHUNK):
            digest.update(chunk)
        self._file.write(digest.digest())
        self._file.flush()
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        return self._file.fileno()

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        self._file.close()


def tree_bytes(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a tree object of `(sort key, encoded row)` pairs."""
    return b"".join([row for _, row in sorted(rows)])


HELD = 8 * CHUNK
"""Bytes of small objects that are buffered, so that one request to the store covers many."""


class Objects(Protocol):
    """Stored objects."""

    def missing(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return the objects that are not in the store."""
        ...


class Adding:
    """Adds objects to `pack`, each once, unless `library` has them."""

    def __init__(self, pack: Pack, library: Objects) -> None:
        self._pack = pack
        self._library = library
        self._waiting: dict[bytes, tuple[str, bytes]] = {}
        self._waiting_bytes = 0
        self._packed: set[bytes] = set()

    def offer(self, kind: str, data: bytes) -> bytes:
        """Add an object unless the store has it; many are checked at once. Returns its name."""
        name = object_id(kind, data)
        if name not in self._waiting and name not in self._packed:
            self._waiting[name] = (kind, data)
            self._waiting_bytes += len(data)
            if self._waiting_bytes > HELD:
                self.flush()
        return name

    def settle(self, blob: bytes, start: int) -> bytes:
        """Remove an object that was written to the pack at `start` if the store has it already."""
        if blob in self._packed or not self._library.missing([blob]):
            self._pack.take_back(start)
        self._packed.add(blob)
        return blob

    def flush(self) -> None:
        """Add the buffered objects that the store does not have."""
        absent = self._library.missing(list(self._waiting)) if self._waiting else set()
        for name, (kind, data) in self._waiting.items():
            if name in absent:
                self._pack.add(kind, data)
        self._packed |= self._waiting.keys()
        self._waiting.clear()
        self._waiting_bytes = 0
