"""Encoding of facts, and the hash chain over them (S1).

A stored body is one JSON object: `v` (schema version), `id`, `actor`, `key` (the key of a post, absent for appended
events), and `fact`, whose `type` comes first. The chain covers the digest of those bytes as stored; decoding, upcasts,
and re-encoding never change it. `tests/golden` freezes the format of each version.

Nothing is stored that cannot be read back: `prepare` decodes what it encoded. An unknown field, type, or literal value
is never skipped (S19), so every addition to the vocabulary raises `SCHEMA`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import LogDamaged, SchemaTooNew, UsageError
from holdfast.facts.base import Erased, Fact
from holdfast.facts.union import FACT_TYPES, AnyFact, type_of

SCHEMA = 11
"""Schema version that this program writes."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(type, version) → conversion of a fact's fields to the next version. Applied in memory only."""


class Draft(msgspec.Struct, frozen=True):
    """A fact to be appended: it has an id and an actor, but no position, time, or hash yet.

    `actor` is `brain`, `user:NAME`, or `system`.
    """

    id: str
    actor: str
    fact: AnyFact


class Event(msgspec.Struct, frozen=True, gc=False):
    """A fact at its position in the log. For an erased body `fact` is `Erased`, and `id` and `actor` are empty."""

    session_id: str
    seq: int
    epoch: int
    at_us: int
    hash: bytes
    id: str
    actor: str
    type: str
    fact: Fact

    @property
    def fence(self) -> int:
        """Number of the shift that this `shift.started` begins, for hands: its epoch, then four bytes of its hash.

        The hash tells apart two shifts that a database gave one epoch because it had lost commits (S9).
        """
        return self.epoch << 32 | int.from_bytes(self.hash[:4], "big")


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Stored body of the current schema."""

    v: int
    id: str
    actor: str
    key: str = ""
    fact: AnyFact


class _AnyBody(msgspec.Struct, frozen=True):
    """Stored body of any version, with the fact left undecoded."""

    v: int
    id: str
    actor: str
    fact: msgspec.Raw
    key: str = ""


class _OldBody(_AnyBody, frozen=True, forbid_unknown_fields=True):
    """Stored body of an earlier version. Unknown fields are refused."""


_encode = msgspec.json.Encoder().encode
decode_today = msgspec.json.Decoder(Body).decode
"""Decode a body of the current schema; `decode_body` also reads older ones."""
_decode_any = msgspec.json.Decoder(_AnyBody).decode
_decode_old = msgspec.json.Decoder(_OldBody).decode


def prepare(draft: Draft, key: str = "") -> tuple[bytes, Fact]:
    """Return the bytes to store for a draft, and the fact as later readers will decode it.

    `key` is the key of a post. Raises `UsageError` for values that JSON cannot hold: a number that is not finite, text
    that is not Unicode, a mapping whose keys are not text.
    """
    try:
        body = _encode(Body(v=SCHEMA, id=draft.id, actor=draft.actor, key=key, fact=draft.fact))
        fact: Fact = decode_today(body).fact
    except UnicodeEncodeError as error:
        raise UsageError(
            f"a {type_of(draft.fact)} holds text that is not valid Unicode ({error.reason}); nothing was written: "
            "replace the bytes that are not UTF-8 and try again"
        ) from error
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"a {type_of(draft.fact)} cannot be stored: {error}; nothing was written") from error
    if fact != draft.fact:
        raise UsageError(
            f"a {type_of(draft.fact)} holds a value that JSON cannot hold (a number that is not finite, or a "
            "mapping or sequence of another kind than dict and list); nothing was written"
        )
    return body, fact


def encode_body(draft: Draft, key: str = "") -> bytes:
    """Return the bytes to store for a draft. Raises like `prepare`."""
    return prepare(draft, key)[0]


def decode_body(body: bytes, type_: str) -> tuple[str, str, Fact]:
    """Return `(id, actor, fact)` of a stored body, upcast to the current schema.

    Raises `SchemaTooNew` for an unknown version or type, and `LogDamaged` for bytes that are not a body or are of
    another type.
    """
    try:
        whole = decode_today(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _decode_other(body, type_, error)
    if whole.v != SCHEMA or type(whole.fact) is not FACT_TYPES.get(type_):
        return _decode_other(body, type_, None)
    return whole.id, whole.actor, whole.fact


def _decode_other(body: bytes, type_: str, error: Exception | None) -> tuple[str, str, Fact]:
    """Decode a body of an older schema, or raise the error that fits a newer or damaged one."""
    try:
        whole = _decode_any(body)
        if whole.v > SCHEMA or type_ not in FACT_TYPES:
            raise SchemaTooNew(
                f"an event of type {type_!r}, schema {whole.v}, was written by a newer Holdfast than this one "
                f"(schema {SCHEMA}); nothing was skipped or changed: upgrade Holdfast and try again"
            ) from error
        if 1 <= whole.v < SCHEMA:
            whole = _decode_old(body)
            return whole.id, whole.actor, _upcast(whole.fact, type_, whole.v)
        reason = str(error) if error else "it is of another type"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as worse:
        reason = str(worse)
    raise LogDamaged(f"the body of an event of type {type_!r} does not decode: {reason}") from error


def _upcast(raw: msgspec.Raw, type_: str, version: int) -> Fact:
    fields: dict[str, Any] = msgspec.json.decode(raw)
    for old in range(version, SCHEMA):
        change = UPCASTS.get((type_, old))
        fields = change(fields) if change else fields
    return msgspec.convert(fields, FACT_TYPES[type_])


def stored_envelope(body: bytes) -> tuple[int, str]:
    """Return `(schema version, post key)` of a stored body; the key is empty for appended events."""
    try:
        whole = _decode_any(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(f"the body of an event does not decode: {error}") from error
    return whole.v, whole.key


def erased(digest: bytes) -> Erased:
    """Return the placeholder for an erased body."""
    return Erased(digest=digest.hex())


_EIGHTS = struct.Struct(">IQIQIqI").pack
_DIGEST_LENGTH = (32).to_bytes(4, "big")


class Chain:
    """Hash chain of one session from a given position on. `hash` is the hash of the last event linked.

    An event's hash is SHA-256 over these fields, each preceded by its length in four bytes, with numbers in eight
    bytes, big-endian: previous hash, session, seq, epoch, at (signed), type, SHA-256 of the stored body.
    """

    __slots__ = ("_session", "hash")

    def __init__(self, session_id: str, hash: bytes) -> None:
        name = session_id.encode()
        self._session = len(name).to_bytes(4, "big") + name
        self.hash = hash

    def link(self, seq: int, epoch: int, at_us: int, type_: str, digest: bytes) -> bytes:
        """Return the hash of the next event. Raises `struct.error` for numbers longer than eight bytes."""
        kind = type_.encode()
        self.hash = hashlib.sha256(
            b"".join(
                (
                    _DIGEST_LENGTH,
                    self.hash,
                    self._session,
                    _EIGHTS(8, seq, 8, epoch, 8, at_us, len(kind)),
                    kind,
                    _DIGEST_LENGTH,
                    digest,
                )
            )
        ).digest()
        return self.hash


def genesis(session_id: str) -> bytes:
    """Return the hash before the first event of a session, derived from the session id."""
    out = []
    for field in (b"holdfast log 1", session_id.encode()):
        out.append(len(field).to_bytes(4, "big"))
        out.append(field)
    return hashlib.sha256(b"".join(out)).digest()


def chain(prev: bytes, session_id: str, seq: int, epoch: int, at_us: int, type_: str, body_digest: bytes) -> bytes:
    """Return the hash of one event that follows the hash `prev`; see `Chain`."""
    return Chain(session_id, prev).link(seq, epoch, at_us, type_, body_digest)


def body_digest(body: bytes) -> bytes:
    """Return the SHA-256 of a stored body."""
    return hashlib.sha256(body).digest()


def export_line(event: Event) -> dict[str, Any]:
    """Return an event as one flat JSON-compatible object, for `logs --json` and `export`."""
    fields = msgspec.to_builtins(event.fact)
    head = {"session_id": event.session_id, "seq": event.seq, "id": event.id, "type": event.type}
    tail = {"epoch": event.epoch, "actor": event.actor, "hash": event.hash.hex()}
    fields.pop("type", None)
    return {**head, "at_us": event.at_us, **tail, **fields}
