"""Stored events to events: the chain is checked on the bytes as they lie there (S1), then they decode.

Pure, and the hot path of every wake: one pass, little Python per event.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable

import msgspec

from holdfast.errors import LogDamaged
from holdfast.facts.codec import SCHEMA, Chain, Event, decode_body, decode_today, erased
from holdfast.facts.union import FACT_TYPES
from holdfast.session.rows import SessionRow

StoredEvent = tuple[int, int, int, str, bytes, bytes | None, bytes | None]
"""`(seq, epoch, at_us, type, hash, body, digest)`. Without a body, it lies among the blobs."""

Blob = Callable[[bytes], "StoredBlob"]
"""Digest → what lies there."""

BLOB_OVER = 64 * 1024
"""Bodies of more bytes than this are blobs."""


class StoredBlob(msgspec.Struct, frozen=True):
    """`found` without `body` is a tombstone: erased on purpose. Not found is damage."""

    found: bool
    body: bytes | None = None


def damaged(session_id: str, seq: int, what: str) -> LogDamaged:
    """The error that names the first bad sequence number; 0 is for a row beside the events."""
    where = f"at event {seq}" if seq else "beside its events"
    return LogDamaged(
        f"the log of session {session_id} is damaged {where}: {what}; nothing was written: restore the database "
        "from a backup, or look at what is there with `holdfast verify`",
        session_id=session_id,
        seq=seq,
    )


def events_of(
    session_id: str, stored: Iterable[StoredEvent], blob: Blob, *, after: int = 0, prev: bytes | None = None
) -> list[Event]:
    """The events of stored rows that follow `after`.

    With `prev`, the hash at `after`, each is linked as stored. Raises `LogDamaged` with the first bad
    sequence number: a gap, another hash, a lost blob, bytes that do not decode.
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
                pass  # of another schema, or no body: the careful way says which
            id_, actor, fact = decode_body(body, type_)
            keep(Event(session_id, seq, epoch, at_us, hash_, id_, actor, type_, fact))
    except LogDamaged as error:
        if error.seq:
            raise
        raise type(error)(
            f"session {session_id}, event {expected}: {error}", session_id=session_id, seq=expected
        ) from error
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise damaged(session_id, expected, "its row holds something else than an event") from error
    return out


def check_head(row: SessionRow, at: int, hash_: bytes) -> None:
    """The last event read, or the position that was read from, is the head that the row names."""
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
