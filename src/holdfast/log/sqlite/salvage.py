"""What lies behind damage in a write-ahead log: evidence of what was lost, never a log to go on from.

SQLite's reader stops at the first frame whose checksum does not continue the one before it. A copy whose checksums are
made to continue lets it read on: pages that were damaged are then wrong, and the rows of the others name what existed.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
_BIG_ENDIAN_SUMS = 1
_READ_MAX_BYTES = 256 << 20
"""A larger log is not looked into: summing it takes minutes."""


def heads_behind(database: Path, folder: Path) -> dict[str, int]:
    """Session → head, as far as a copy in `folder` can be read past the damage; empty when nothing can."""
    wal = database.with_name(f"{database.name}-wal")
    try:
        if wal.stat().st_size > _READ_MAX_BYTES:
            return {}
        mended = _mended(wal.read_bytes())
        copy = folder / "behind.db"
        shutil.copyfile(database, copy)
        copy.with_name("behind.db-wal").write_bytes(mended)
        with closing(sqlite3.connect(copy)) as connection:
            found = connection.execute("select session_id, head from sessions").fetchall()
            return {name: head for name, head in found if isinstance(name, str) and isinstance(head, int)}
    except (OSError, sqlite3.Error, UnicodeDecodeError, struct.error):
        return {}


def _mended(wal: bytes) -> bytes:
    """The log up to its last commit frame, with checksums that continue. Frames with a damaged header are left out."""
    magic, version, page_bytes, *_ = _HEADER.unpack_from(wal)
    order = ">" if magic & _BIG_ENDIAN_SUMS else "<"
    if magic & ~_BIG_ENDIAN_SUMS != _MAGIC:
        order = "<"
    salts = wal[16:24]
    head = struct.pack(">4I", _MAGIC | (order == ">"), version, page_bytes, _HEADER.unpack_from(wal)[3]) + salts
    sums = _sums(head, (0, 0), order)
    mended, committed = [head + struct.pack(">2I", *sums)], 1
    size = _FRAME.size + page_bytes
    for at in range(_HEADER.size, len(wal) - size + 1, size):
        page, commit, *_ = _FRAME.unpack_from(wal, at)
        if wal[at + 8 : at + 16] != salts or not page:
            continue
        content = wal[at + _FRAME.size : at + size]
        sums = _sums(content, _sums(wal[at : at + 8], sums, order), order)
        mended.append(wal[at : at + 8] + salts + struct.pack(">2I", *sums) + content)
        if commit:
            committed = len(mended)
    return b"".join(mended[:committed])


def _sums(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's running checksum over whole pairs of words."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
