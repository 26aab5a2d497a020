"""The watermark: what was acknowledged last, in a small file beside the database.

SQLite ends the write-ahead log at the first frame whose checksum is wrong, and says nothing: a flipped bit there, a
deleted log, or an older copy of the database is a shorter log that verifies. The watermark names the last event of each
of the latest commits. Commits have one order, so a database that holds the newest of these events holds everything that
was acknowledged before it, and one that lacks any of them has lost something.

A record is written after its commit was synced, and is not synced itself: it is never ahead of the log. One that is
torn, lost, or could not be written claims nothing.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.clock import rfc3339
from holdfast.errors import EventsLost
from holdfast.facts.codec import Event
from holdfast.log.sqlite.connect import SQL
from holdfast.log.sqlite.trouble import code_of, translated

SLOTS = 8
"""Records are written in turn: a torn one, or a late one of another process, leaves the others."""

_SLOT_BYTES = 512
_MAGIC = b"HFMARK1\0"
_RECORD = struct.Struct("<8sQq32sH")
_CHECKSUM_BYTES = 16
_ID_BYTES = _SLOT_BYTES - _RECORD.size - _CHECKSUM_BYTES


class Mark(msgspec.Struct, frozen=True, order=True):
    """The last event of a transaction that was acknowledged."""

    at_us: int
    session_id: str
    seq: int
    hash: bytes


def watermark_path(database: Path) -> Path:
    """The file beside a database."""
    real = Path(os.path.realpath(database))
    return real.with_name(f"{real.name}-mark")


class Watermark:
    """The file as a writer of the log keeps it. It never raises: the commit that a record is about has happened."""

    def __init__(self, database: Path) -> None:
        self._path = watermark_path(database)
        self._fd = -1
        self._next = 0

    def write(self, last: Event) -> None:
        """Record the last event of a commit that was synced."""
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
        """Open or make the file; go on after its newest record."""
        self.close()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        slots = _slots(os.pread(self._fd, SLOTS * _SLOT_BYTES, 0))
        newest = max(((mark, slot) for slot, mark in enumerate(slots) if mark is not None), default=None)
        self._next = (newest[1] + 1) % SLOTS if newest else 0


def marks(database: Path) -> list[Mark]:
    """The intact records, oldest first."""
    try:
        stored = watermark_path(database).read_bytes()
    except OSError:
        return []
    return sorted(mark for mark in _slots(stored) if mark is not None)


def missing(database: Path, busy_timeout_s: float) -> list[Mark]:
    """Acknowledged events that the watermark names and the database lacks, oldest first.

    It looks through a read-only connection: closing that neither checkpoints nor removes the write-ahead log, so
    what lies behind damage in it stays there. A database that is damaged itself, or is none, is not judged here.
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
            return [mark for mark in claimed if not _holds(connection, mark)]
        finally:
            connection.close()
    except sqlite3.Error as error:
        if code_of(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY):
            raise translated(error, database) from error
        return []


def check_acknowledged(database: Path, busy_timeout_s: float) -> None:
    """Raise `EventsLost` for a database that lacks events which were acknowledged. Nothing is written."""
    lost = missing(database, busy_timeout_s)
    if not lost:
        return
    last = lost[-1]
    raise EventsLost(
        f"the database {database} lacks events that were acknowledged, the newest of them event {last.seq} of session "
        f"{last.session_id} at {rfc3339(last.at_us)[:19]}Z: its write-ahead log was damaged or removed, or it was "
        "replaced by an older copy, such as a restored backup. Nothing was written. Put the newest copy of the "
        "database and of its -wal file back, or see what is missing and go on without it with `holdfast recover`",
        session_id=last.session_id,
        seq=last.seq,
    )


def forget(database: Path, lost: list[Mark]) -> None:
    """Erase the records of events that were given up for lost, in place."""
    fd = os.open(watermark_path(database), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for slot, mark in enumerate(_slots(os.pread(fd, SLOTS * _SLOT_BYTES, 0))):
            if mark in lost:
                os.pwrite(fd, bytes(_SLOT_BYTES), slot * _SLOT_BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)


def _holds(connection: sqlite3.Connection, mark: Mark) -> bool:
    values = {"session_id": mark.session_id, "seq": mark.seq}
    found = connection.execute(SQL["event_hash"], values).fetchone()
    return found is not None and found[0] == mark.hash


def _slots(stored: bytes) -> list[Mark | None]:
    """What stands in each slot; None for one that is empty, torn, or of another format."""
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
