"""Logs of every released schema are read today as they were written (S1)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.facts.base import Erased
from holdfast.facts.codec import SCHEMA, Chain, Draft, Event, body_digest, encode_body, genesis, stored_envelope
from holdfast.facts.union import FACT_TYPES
from holdfast.log.chain import StoredBlob, StoredEvent, events_of
from holdfast.log.verify import Rebuilt
from tests.golden.make import ERASED, HERE, Line, make

FILES = sorted(HERE.glob("v*/*.jsonl"))
OF_TODAY = [path for path in FILES if path.parent.name == f"v{SCHEMA}"]


def lines(path: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().split(b"\n") if line]


def stored(path: Path) -> list[StoredEvent]:
    return [
        (
            line.seq,
            line.epoch,
            line.at_us,
            line.type,
            bytes.fromhex(line.hash),
            None if line.body is None else line.body.encode(),
            bytes.fromhex(line.digest) if line.digest else None,
        )
        for line in lines(path)
    ]


def tombstones(_: bytes) -> StoredBlob:
    return StoredBlob(found=True)


def before(path: Path) -> tuple[int, bytes]:
    """Where a log begins: a fork goes on from its origin's event (S22)."""
    first = lines(path)[0]
    if first.type != "session.forked":
        return 0, genesis(first.session_id)
    fact = msgspec.json.decode(first.body or "")["fact"]
    return int(fact["origin_seq"]), bytes.fromhex(fact["origin_hash"])


def events(path: Path) -> list[Event]:
    at, prev = before(path)
    return events_of(lines(path)[0].session_id, stored(path), tombstones, after=at, prev=prev)


WHOLE = [path for path in FILES if path.stem not in ("home", "fork")]
"""Logs that begin at their beginning and are worked on: their rows can be made from the file alone."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_released_log_verifies_and_decodes(path: Path) -> None:
    read = events(path)
    assert [event.type for event in read] == [line.type for line in lines(path)]
    assert all(type(event.fact) in (FACT_TYPES[event.type], Erased) for event in read)


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_rows_of_a_released_log_can_be_made(path: Path) -> None:
    session_id = lines(path)[0].session_id
    rebuilt = Rebuilt()
    rebuilt.session(session_id, stored(path), tombstones)
    row = rebuilt.rows[session_id]
    assert (row.status, row.epoch, row.holder, row.head) == ("runnable", 3, "wrk_3", len(lines(path)))
    assert rebuilt.posts[session_id, "cancel-2"] == row.head


@pytest.mark.parametrize("path", OF_TODAY, ids=lambda path: path.stem)
def test_what_is_decoded_encodes_to_the_same_bytes(path: Path) -> None:
    for event, (_, _, _, _, _, body, _) in zip(events(path), stored(path), strict=True):
        if body is not None:
            _, key = stored_envelope(body)
            fact = msgspec.convert(msgspec.to_builtins(event.fact), FACT_TYPES[event.type])
            assert encode_body(Draft(event.id, event.actor, fact), key) == body  # type: ignore[arg-type]


def test_every_type_is_there() -> None:
    assert {line.type for path in FILES for line in lines(path)} == set(FACT_TYPES)


def test_every_field_is_set_somewhere() -> None:
    """A field that no golden event has could change its meaning unseen."""
    there: dict[str, set[str]] = {name: set() for name in FACT_TYPES}
    for path in OF_TODAY:
        for event in events(path):
            if not isinstance(event.fact, Erased):
                empty = {field.name: field.default for field in msgspec.structs.fields(event.fact)}
                values = {name: getattr(event.fact, name) for name in empty}
                there[event.type] |= {name for name, value in values.items() if value != empty[name] and value != {}}
    missing = {name: set(cls.__struct_fields__) - there[name] for name, cls in FACT_TYPES.items()}
    assert {name: fields for name, fields in missing.items() if fields} == {}


def test_a_tombstone_is_there() -> None:
    found = [event for path in FILES for event in events(path) if isinstance(event.fact, Erased)]
    versions = {path.parent for path in FILES}
    assert [(each.session_id, each.seq, each.type) for each in found] == [
        ("ses_full", ERASED, "agent.tool_result") for _ in versions
    ]


@pytest.mark.parametrize("path", OF_TODAY, ids=lambda path: path.stem)
async def test_todays_log_would_be_written_the_same_again(path: Path) -> None:
    assert (await make())[path.name] == lines(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_hashes_follow_from_the_bytes_alone(path: Path) -> None:
    session_id = lines(path)[0].session_id
    chain = Chain(session_id, before(path)[1])
    for seq, epoch, at_us, type_, hash_, body, digest in stored(path):
        bound = body_digest(body) if body is not None else digest
        assert bound is not None
        assert chain.link(seq, epoch, at_us, type_, bound) == hash_
