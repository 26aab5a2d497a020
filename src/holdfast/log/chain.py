"""Stored events: verify the hash chain on the stored bytes (S1), then decode them; forks share events (S22)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.errors import LogDamaged, UsageError
from holdfast.facts.codec import SCHEMA, Chain, Event, decode_body, decode_today, erased, genesis
from holdfast.facts.union import FACT_TYPES
from holdfast.session.rows import SessionRow

StoredEvent = tuple[int, int, int, str, bytes, bytes | None, bytes | None]
"""`(seq, epoch, at_us, type, hash, body, digest)`. A missing body is stored as a blob."""

Blob = Callable[[bytes], "StoredBlob"]
"""Digest → stored blob."""

BLOB_OVER = 64 * 1024
"""Bodies larger than this many bytes are stored as blobs."""


class StoredBlob(msgspec.Struct, frozen=True):
    """A blob. `found` without `body` is a tombstone, left by an erasure; a blob not found is damage."""

    found: bool
    body: bytes | None = None


def damaged(session_id: str, seq: int, what: str) -> LogDamaged:
    """Return the error for damage at sequence number `seq`; 0 means a row beside the events."""
    where = f"at event {seq}" if seq else "beside its events"
    return LogDamaged(
        f"the log of session {session_id} is damaged {where}: {what}; nothing was written: restore the database "
        "from a backup, or inspect the damage with `holdfast verify`",
        session_id=session_id,
        seq=seq,
    )


def events_of(
    session_id: str, stored: Iterable[StoredEvent], blob: Blob, *, after: int = 0, prev: bytes | None = None
) -> list[Event]:
    """Decode the stored events after `after`.

    With `prev`, the hash at `after`, the chain is verified. Raises `LogDamaged` with the first bad sequence
    number: a gap, a wrong hash, a lost blob, or bytes that do not decode.
    """
    out: list[Event] = []
    keep = out.append
    sha256 = hashlib.sha256
    link = Chain(session_id, prev).link if prev is not None else None
    expected = after
    try:
        for seq, epoch, at_us, type_, hash_, body, digest in stored:
            expected += 1
            if seq != expected:
                raise damaged(session_id, expected, "it is missing")
            if body is None:
                body = _blob(session_id, seq, digest, blob)
            if link is not None:
                bound = digest if body is None else sha256(body).digest()
                if link(seq, epoch, at_us, type_, bound or b"") != hash_:
                    raise damaged(session_id, seq, "its hash does not follow from what is stored")
            if body is None:
                keep(Event(session_id, seq, epoch, at_us, hash_, "", "", type_, erased(digest or b"")))
                continue
            try:
                whole = decode_today(body)
                if whole.v == SCHEMA and type(whole.fact) is FACT_TYPES.get(type_):
                    keep(Event(session_id, seq, epoch, at_us, hash_, whole.id, whole.actor, type_, whole.fact))
                    continue
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass  # another schema version, or damage: `decode_body` decides
            id_, actor, fact = decode_body(body, type_)
            keep(Event(session_id, seq, epoch, at_us, hash_, id_, actor, type_, fact))
    except LogDamaged as error:
        if error.seq:
            raise
        raise type(error)(
            f"session {session_id}, event {expected}: {error}", session_id=session_id, seq=expected
        ) from error
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise damaged(session_id, expected, "its row is not an event") from error
    return out


def check_head(row: SessionRow, at: int, hash_: bytes) -> None:
    """Raise `LogDamaged` unless the last event read is the head in the row."""
    if at != row.head:
        raise damaged(row.session_id, min(at, row.head) + 1, f"the log ends at {at}, its row says {row.head}")
    if hash_ != row.head_hash:
        raise damaged(row.session_id, at, "it is not the event that the session's row ends with")


def _blob(session_id: str, seq: int, digest: bytes | None, blob: Blob) -> bytes | None:
    if digest is None:
        raise damaged(session_id, seq, "it has neither a body nor a digest")
    found = blob(digest)
    if not found.found:
        raise damaged(session_id, seq, "its body is lost: no blob has its digest")
    return found.body


Find = Callable[[str], SessionRow | None]
"""Session id → row."""

Own = Callable[[str, int, int, bytes | None], list[Event]]
"""A session's own events: `(session_id, after, count, prev)`, verified when `prev` is given."""

ALL = 2**62
"""No limit. PostgreSQL and SQLite spell it differently."""


class Part(NamedTuple):
    """One session's events after `after` up to and including `through`, or to the end if `through` is None."""

    session_id: str
    after: int
    through: int | None


def parts(row: SessionRow, find: Find) -> list[Part]:
    """Return the sessions that store a session's events, in order. Raises `LogDamaged` if an origin is gone."""
    found: list[Part] = []
    seen: set[str] = set()
    through: int | None = None
    while True:
        if through is None or through > row.origin_seq:
            found.append(Part(row.session_id, row.origin_seq, through))
        if not row.origin:
            return found[::-1]
        seen.add(row.session_id)
        through = row.origin_seq if through is None else min(through, row.origin_seq)
        origin = find(row.origin)
        if origin is None or origin.session_id in seen:
            raise damaged(row.session_id, 0, f"it is a fork of session {row.origin}, which does not exist")
        row = origin


def the_one(events: Sequence[Event], session_id: str, seq: int) -> Event:
    """Return the only event of a read. Raises `UsageError` if it read beyond the head."""
    if not events:
        raise UsageError(f"session {session_id} has no event {seq}")
    return events[0]


def holder(row: SessionRow, find: Find, seq: int) -> str:
    """Return the id of the session that stores this session's event at `seq`."""
    if seq > row.origin_seq:
        return row.session_id
    return next(part.session_id for part in parts(row, find) if part.through is None or seq <= part.through)


def read(row: SessionRow, find: Find, own: Own, after: int, prev: bytes | None, count: int) -> list[Event]:
    """Read a session: its origins' events, then its own."""
    if after >= row.origin_seq and row.origin:
        return own(row.session_id, after, count, prev)
    found: list[Event] = []
    at, link = after, prev
    places = parts(row, find)
    if after == 0 and prev == genesis(row.session_id):
        link = genesis(places[0].session_id)
    for part in places:
        if part.through is not None and part.through <= at:
            continue
        left = count - len(found)
        wanted = left if part.through is None else min(left, part.through - at)
        events = own(part.session_id, at, wanted, link)
        found += events
        if events:
            at, link = events[-1].seq, events[-1].hash if link is not None else None
        if len(found) >= count:
            break
        if part.through is not None and at < part.through:
            raise damaged(part.session_id, at + 1, "it is missing")
    return found
