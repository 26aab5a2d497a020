"""The watermark: the last acknowledged events, in a small file beside the database.

SQLite silently ends the write-ahead log at the first frame with a wrong checksum: after a flipped bit, a deleted log,
or a restored older copy, the log is shorter and still verifies. The watermark names the last event of each of the
latest commits. Commits are ordered, so a database with the newest of these events has all that was acknowledged
before it, and one that lacks any of them has lost events.

A record is written after its commit was synced, and is not synced itself, so it is never ahead of the log. A torn,
lost, or unwritten record is ignored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import struct
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from holdfast.clock import rfc3339
from holdfast.errors import EventsLost
from holdfast.facts.codec import Event
from holdfast.log.sqlite.connect import SQL, code_of, translated
from holdfast.session.home import HOME

SLOTS = 8
"""Number of records, written in turn, so that a torn or late one leaves the others intact."""

_SLOT_BYTES = 512
_MAGIC = b"HFMARK1\0"
_RECORD = struct.Struct("<8sQq32sH")
_CHECKSUM_BYTES = 16
_ID_BYTES = _SLOT_BYTES - _RECORD.size - _CHECKSUM_BYTES


class Mark(msgspec.Struct, frozen=True, order=True):
    """The last event of an acknowledged transaction."""

    at_us: int
    session_id: str
    seq: int
    hash: bytes


def watermark_path(database: Path) -> Path:
    """Return the path of a database's watermark."""
    real = Path(os.path.realpath(database))
    return real.with_name(f"{real.name}-mark")


class Watermark:
    """A writer's watermark file. It never raises, since the recorded commit has already happened."""

    def __init__(self, database: Path) -> None:
        self._path = watermark_path(database)
        self._fd = -1
        self._next = 0

    def write(self, last: Event) -> None:
        """Record the last event of a synced commit."""
        name = last.session_id.encode()
        if len(name) > _ID_BYTES:
            return
        try:
            if self._fd < 0 or os.fstat(self._fd).st_nlink == 0:
                self._open()
            head = _RECORD.pack(_MAGIC, last.seq, last.at_us, last.hash, len(name)) + name
            record = head.ljust(_SLOT_BYTES - _CHECKSUM_BYTES, b"\0")
            os.pwrite(self._fd, record + _checksum(record), self._next * _SLOT_BYTES)
            self._next = (self._next + 1) % SLOTS
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _open(self) -> None:
        """Open or create the file; continue after its newest record."""
        self.close()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        slots = _slots(os.pread(self._fd, SLOTS * _SLOT_BYTES, 0))
        newest = max(((mark, slot) for slot, mark in enumerate(slots) if mark is not None), default=None)
        self._next = (newest[1] + 1) % SLOTS if newest else 0


def marks(database: Path) -> list[Mark]:
    """Return the intact records of a watermark, oldest first."""
    try:
        stored = watermark_path(database).read_bytes()
    except OSError:
        return []
    return sorted(mark for mark in _slots(stored) if mark is not None)


def missing(database: Path, busy_timeout_s: float) -> list[Mark]:
    """Return the acknowledged events that the watermark names and the database lacks, oldest first.

    It uses a read-only connection: closing that neither checkpoints nor removes the write-ahead log, so events
    behind damage in it stay. It does not detect a damaged database or a foreign file.
    """
    claimed = marks(database)
    if not claimed:
        return []
    if not database.exists() or not database.stat().st_size:
        return claimed
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=busy_timeout_s)
        try:
            if connection.execute("select 1 from sqlite_master").fetchone() is None:
                return claimed
            lost = []
            for mark in claimed:
                values = {"session_id": mark.session_id, "seq": mark.seq}
                found = connection.execute(SQL["event_hash"], values).fetchone()
                if found is not None and found[0] == mark.hash:
                    continue
                removal = {"home": HOME, "quoted": f'"{mark.session_id}"'.encode()}
                if found is not None or connection.execute(SQL["removal"], removal).fetchone() is None:
                    lost.append(mark)
            return lost
        finally:
            connection.close()
    except sqlite3.Error as error:
        if code_of(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY):
            raise translated(error, database) from error
        return []


def check_acknowledged(database: Path, busy_timeout_s: float) -> None:
    """Raise `EventsLost` if the database lacks acknowledged events. Nothing is written."""
    lost = missing(database, busy_timeout_s)
    if not lost:
        return
    last = lost[-1]
    raise EventsLost(
        f"the database {database} lacks acknowledged events, the newest of them event {last.seq} of session "
        f"{last.session_id} at {rfc3339(last.at_us)[:19]}Z: its write-ahead log was damaged or removed, or it was "
        "replaced by an older copy, such as a restored backup. Nothing was written. Put the newest copy of the "
        "database and of its -wal file back, or see what is missing and go on without it with `holdfast recover`",
        session_id=last.session_id,
        seq=last.seq,
    )


def forget(database: Path, lost: list[Mark]) -> None:
    """Erase the records of lost events, in place."""
    fd = os.open(watermark_path(database), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for slot, mark in enumerate(_slots(os.pread(fd, SLOTS * _SLOT_BYTES, 0))):
            if mark in lost:
                os.pwrite(fd, bytes(_SLOT_BYTES), slot * _SLOT_BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)


def _slots(stored: bytes) -> list[Mark | None]:
    """Return the record of each slot, None for an empty, torn, or foreign one."""
    return [_mark(stored[at : at + _SLOT_BYTES]) for at in range(0, SLOTS * _SLOT_BYTES, _SLOT_BYTES)]


def _mark(slot: bytes) -> Mark | None:
    record, checksum = slot[:-_CHECKSUM_BYTES], slot[-_CHECKSUM_BYTES:]
    if len(slot) != _SLOT_BYTES or _checksum(record) != checksum:
        return None
    magic, seq, at_us, hash_, length = _RECORD.unpack_from(record)
    if magic != _MAGIC or length > _ID_BYTES:
        return None
    return Mark(at_us, record[_RECORD.size : _RECORD.size + length].decode(), seq, hash_)


def _checksum(record: bytes) -> bytes:
    return hashlib.sha256(record).digest()[:_CHECKSUM_BYTES]


_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_WAL_MAGIC = 0x377F0682
_BIG_ENDIAN_SUMS = 1
_READ_MAX_BYTES = 256 << 20
"""Largest write-ahead log that is read, in bytes: the checksums of larger ones take minutes."""


def heads_behind(database: Path, folder: Path) -> dict[str, int]:
    """Return session → head, as far as a copy in `folder` can be read past damage in its write-ahead log.

    The result is evidence of lost events, never a log to continue from. SQLite stops at the first frame whose
    checksum does not continue the previous one. In a copy with recomputed checksums it reads on: damaged pages are
    then wrong, but rows on the other pages show what existed.
    """
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
    """Return the log up to its last commit frame, checksums recomputed, frames with a damaged header left out."""
    magic, version, page_bytes, *_ = _HEADER.unpack_from(wal)
    order = ">" if magic & _BIG_ENDIAN_SUMS else "<"
    if magic & ~_BIG_ENDIAN_SUMS != _WAL_MAGIC:
        order = "<"
    salts = wal[16:24]
    head = struct.pack(">4I", _WAL_MAGIC | (order == ">"), version, page_bytes, _HEADER.unpack_from(wal)[3]) + salts
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
    """Return SQLite's running checksum over whole pairs of words."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second
