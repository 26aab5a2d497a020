"""Facts to bytes and back, and the chain that binds them (S1).

A stored body is one JSON object: `v` (schema version), `id`, `actor`, `key` (the post's key, absent
for what was appended) and `fact`, whose `type` comes first. The chain holds the digest of those bytes
as stored; decoding, upcasts and re-encoding never touch it. The format of each version is frozen by `tests/golden`.

What cannot be read back is never stored: `prepare` decodes what it encoded. A field, a type or a
literal value that this program does not know is never skipped (S19); therefore every addition to the
vocabulary raises `SCHEMA`.
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

SCHEMA = 6
"""Version of the vocabulary that this program writes."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(type, version) → how a fact's fields of that version become the next version's. In memory only."""


class Draft(msgspec.Struct, frozen=True):
    """A fact on its way to the log: named and signed, not yet stamped.

    `actor` says who did it: `brain`, `user:NAME`, `system`.
    """

    id: str
    actor: str
    fact: AnyFact


class Event(msgspec.Struct, frozen=True, gc=False):
    """A fact with its place. `fact` is `Erased`, `id` and `actor` are empty, when its body was erased."""

    session_id: str
    seq: int
    epoch: int
    at_us: int
    hash: bytes
    id: str
    actor: str
    type: str
    fact: Fact


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """A body of today's schema, as stored."""

    v: int
    id: str
    actor: str
    key: str = ""
    fact: AnyFact


class _AnyBody(msgspec.Struct, frozen=True):
    """A body of any version, its fact not looked at."""

    v: int
    id: str
    actor: str
    fact: msgspec.Raw
    key: str = ""


class _OldBody(_AnyBody, frozen=True, forbid_unknown_fields=True):
    """A body of an earlier version: it has nothing that this program does not know."""


_encode = msgspec.json.Encoder().encode
decode_today = msgspec.json.Decoder(Body).decode
"""Bytes → `Body`, when they are of today's schema; `decode_body` knows the others too."""
_decode_any = msgspec.json.Decoder(_AnyBody).decode
_decode_old = msgspec.json.Decoder(_OldBody).decode


def prepare(draft: Draft, key: str = "") -> tuple[bytes, Fact]:
    """The bytes to store for a draft, and the fact as every later reader of them will see it.

    `key` is the key of a post. Raises `UsageError` for what JSON cannot hold: a number that is not
    finite, text that is not Unicode, a mapping with keys that are not text.
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
    """The bytes that are stored for a draft. Raises as `prepare` does."""
    return prepare(draft, key)[0]


def decode_body(body: bytes, type_: str) -> tuple[str, str, Fact]:
    """`(id, actor, fact)` of a stored body, brought to today's schema.

    Raises `SchemaTooNew` for a version or type that this program does not know, `LogDamaged` for
    bytes that are no body at all, or of another type.
    """
    try:
        whole = decode_today(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _decode_other(body, type_, error)
    if whole.v != SCHEMA or type(whole.fact) is not FACT_TYPES.get(type_):
        return _decode_other(body, type_, None)
    return whole.id, whole.actor, whole.fact


def _decode_other(body: bytes, type_: str, error: Exception | None) -> tuple[str, str, Fact]:
    """A body that is not of today's schema: newer, older, or none."""
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
    """`(schema version, post key)` of a stored body; the key is empty for what was appended."""
    try:
        whole = _decode_any(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogDamaged(f"the body of an event does not decode: {error}") from error
    return whole.v, whole.key


def erased(digest: bytes) -> Erased:
    """What stands for a body that was erased."""
    return Erased(digest=digest.hex())


_EIGHTS = struct.Struct(">IQIQIqI").pack
_DIGEST_LENGTH = (32).to_bytes(4, "big")


class Chain:
    """The chain of one session from a position on. `hash` is that of the last event linked.

    An event's hash is SHA-256 over these fields, each with its length before it as four bytes, the
    numbers as eight, big-endian: previous hash, session, seq, epoch, at (signed), type, SHA-256 of the
    body as stored.
    """

    __slots__ = ("_session", "hash")

    def __init__(self, session_id: str, hash: bytes) -> None:
        name = session_id.encode()
        self._session = len(name).to_bytes(4, "big") + name
        self.hash = hash

    def link(self, seq: int, epoch: int, at_us: int, type_: str, digest: bytes) -> bytes:
        """The hash of the next event. Raises `struct.error` for numbers of more than eight bytes."""
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
    """The hash before the first event of a session: it names the session."""
    out = []
    for field in (b"holdfast log 1", session_id.encode()):
        out.append(len(field).to_bytes(4, "big"))
        out.append(field)
    return hashlib.sha256(b"".join(out)).digest()


def chain(prev: bytes, session_id: str, seq: int, epoch: int, at_us: int, type_: str, body_digest: bytes) -> bytes:
    """The hash of one event after the hash `prev`; `Chain` says over what."""
    return Chain(session_id, prev).link(seq, epoch, at_us, type_, body_digest)


def body_digest(body: bytes) -> bytes:
    """SHA-256 of a body as stored."""
    return hashlib.sha256(body).digest()


def export_line(event: Event) -> dict[str, Any]:
    """An event as one flat JSON-able object, for `logs --json` and `export`."""
    fields = msgspec.to_builtins(event.fact)
    head = {"session_id": event.session_id, "seq": event.seq, "id": event.id, "type": event.type}
    tail = {"epoch": event.epoch, "actor": event.actor, "hash": event.hash.hex()}
    fields.pop("type", None)
    return {**head, "at_us": event.at_us, **tail, **fields}
