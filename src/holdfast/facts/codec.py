"""Facts to bytes and back, and the chain that binds them (S1).

A stored body is one JSON object: `v` (schema version), `id`, `actor`, `type`, then the fact's own
fields. The chain holds the digest of those bytes as stored; decoding, upcasts and re-encoding never
touch it. The format is frozen by `tests/golden/v1`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import LogDamaged, SchemaTooNew
from holdfast.facts.base import Erased, Fact
from holdfast.facts.union import FACT_TYPES, AnyFact

SCHEMA = 1
"""Version of the vocabulary that this program writes."""

Upcast = Callable[[dict[str, Any]], dict[str, Any]]

UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(type, version) → how a body of that version becomes the next version's. In memory only."""


class Draft(msgspec.Struct, frozen=True):
    """A fact on its way to the log: named and signed, not yet stamped.

    `actor` says who did it: `brain`, `user:NAME`, `system`.
    """

    id: str
    actor: str
    fact: AnyFact


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A fact with its place. `fact` is `Erased` when its body was erased."""

    session_id: str
    seq: int
    epoch: int
    at_us: int
    hash: bytes
    id: str
    actor: str
    type: str
    fact: Fact


class _Envelope(msgspec.Struct, frozen=True):
    v: int
    id: str
    actor: str


_encode = msgspec.json.Encoder().encode
_decode_fact = msgspec.json.Decoder(AnyFact).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def encode_body(draft: Draft) -> bytes:
    """The bytes that are stored for a draft."""
    head = _encode({"v": SCHEMA, "id": draft.id, "actor": draft.actor})
    return head[:-1] + b"," + _encode(draft.fact)[1:]


def decode_body(body: bytes, type_: str) -> tuple[str, str, Fact]:
    """`(id, actor, fact)` of a stored body, brought to today's schema.

    Raises `SchemaTooNew` for a version or type that this program does not know, `LogDamaged` for
    bytes that are no body at all.
    """
    try:
        envelope = _decode_envelope(body)
        if envelope.v == SCHEMA and type_ in FACT_TYPES:
            return envelope.id, envelope.actor, _decode_fact(body)
        if envelope.v > SCHEMA or type_ not in FACT_TYPES:
            raise SchemaTooNew(
                f"an event of type {type_!r}, schema {envelope.v}, was written by a newer Holdfast than this one "
                f"(schema {SCHEMA}); nothing was skipped or changed: upgrade Holdfast and try again"
            )
        return envelope.id, envelope.actor, _upcast(body, type_, envelope.v)
    except msgspec.MsgspecError as error:
        raise LogDamaged(f"the body of an event of type {type_!r} does not decode: {error}") from error


def _upcast(body: bytes, type_: str, version: int) -> Fact:
    fields: dict[str, Any] = msgspec.json.decode(body)
    for old in range(version, SCHEMA):
        change = UPCASTS.get((type_, old))
        fields = change(fields) if change else fields
    return msgspec.convert(fields, FACT_TYPES[type_])


def erased(digest: bytes) -> Erased:
    """What stands for a body that was erased."""
    return Erased(digest=digest.hex())


def genesis(session_id: str) -> bytes:
    """The hash before the first event of a session: it names the session."""
    return _digest((b"holdfast log 1", session_id.encode()))


def chain(prev: bytes, session_id: str, seq: int, epoch: int, at_us: int, type_: str, body_digest: bytes) -> bytes:
    """The hash of an event: SHA-256 over its fields, each with its length before it."""
    return _digest(
        (
            prev,
            session_id.encode(),
            seq.to_bytes(8, "big"),
            epoch.to_bytes(8, "big"),
            at_us.to_bytes(8, "big", signed=True),
            type_.encode(),
            body_digest,
        )
    )


def body_digest(body: bytes) -> bytes:
    """SHA-256 of a body as stored."""
    return hashlib.sha256(body).digest()


def _digest(fields: tuple[bytes, ...]) -> bytes:
    out = []
    for field in fields:
        out.append(len(field).to_bytes(4, "big"))
        out.append(field)
    return hashlib.sha256(b"".join(out)).digest()


def export_line(event: Event) -> dict[str, Any]:
    """An event as one flat JSON-able object, for `logs --json` and `export`."""
    fields = msgspec.to_builtins(event.fact)
    head = {"session_id": event.session_id, "seq": event.seq, "id": event.id, "type": event.type}
    tail = {"epoch": event.epoch, "actor": event.actor, "hash": event.hash.hex()}
    fields.pop("type", None)
    return {**head, "at_us": event.at_us, **tail, **fields}
