"""Facts to bytes and back, and the chain (S1, S19)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import LogDamaged, SchemaTooNew, UsageError
from holdfast.facts import codec
from holdfast.facts.base import Text
from holdfast.facts.codec import (
    Draft,
    Event,
    body_digest,
    chain,
    decode_body,
    encode_body,
    export_line,
    genesis,
    prepare,
    stored_envelope,
)
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolResult
from holdfast.facts.union import FACT_TYPES, AnyFact, type_of

EMPTY: tuple[object, ...] = (None, "", 0, 0.0, False, (), {}, [])

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
anything = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8)


PLAIN: dict[type[msgspec.inspect.Type], st.SearchStrategy[Any]] = {
    msgspec.inspect.StrType: texts,
    msgspec.inspect.BytesType: st.binary(max_size=40),
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.IntType: st.integers(),
    msgspec.inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    msgspec.inspect.NoneType: st.none(),
    msgspec.inspect.AnyType: anything,
}


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a field, from its type."""
    if type(kind) in PLAIN:
        return PLAIN[type(kind)]
    match kind:
        case msgspec.inspect.LiteralType():
            return st.sampled_from(kind.values)
        case msgspec.inspect.VarTupleType():
            return st.lists(values(kind.item_type), max_size=3).map(tuple)
        case msgspec.inspect.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=3)
        case msgspec.inspect.UnionType():
            return st.one_of([values(each) for each in kind.types])
        case msgspec.inspect.StructType():
            return st.builds(kind.cls, **{field.name: values(field.type) for field in kind.fields})
    raise AssertionError(f"no strategy for {kind}")


facts = st.one_of([values(msgspec.inspect.type_info(cls)) for cls in FACT_TYPES.values()])


def drafted(fact: AnyFact, key: str = "") -> bytes:
    return encode_body(Draft("evt_1", "brain", fact), key)


@pytest.mark.parametrize("type_", FACT_TYPES)
@settings(max_examples=settings().max_examples // 3)  # of each of a hundred types
@given(data=st.data())
def test_every_fact_survives_its_bytes(type_: str, data: st.DataObject) -> None:
    fact = data.draw(values(msgspec.inspect.type_info(FACT_TYPES[type_])))
    key = data.draw(texts)
    body = drafted(fact, key)
    assert decode_body(body, type_) == ("evt_1", "brain", fact)
    assert stored_envelope(body) == (codec.SCHEMA, key)
    again = decode_body(body, type_)[2]
    assert drafted(again, key) == body  # type: ignore[arg-type]


@given(facts, st.integers(0), st.integers(0))
def test_bytes_with_one_flipped_are_an_error_of_ours_or_another_fact(fact: Any, at: int, by: int) -> None:
    body = bytearray(drafted(fact))
    body[at % len(body)] ^= 1 + by % 255
    try:
        decode_body(bytes(body), type_of(fact))
    except LogDamaged:
        return


@given(st.binary())
def test_noise_is_damage(noise: bytes) -> None:
    with pytest.raises(LogDamaged):
        decode_body(noise, "user.message")


def test_the_stored_shape() -> None:
    fact = UserMessage(content=(Text("hé"),))
    assert drafted(fact, "k").decode() == (
        '{"v":11,"id":"evt_1","actor":"brain","key":"k",'
        '"fact":{"type":"user.message","content":[{"type":"text","text":"hé"}]}}'
    )
    assert drafted(fact).decode().startswith('{"v":11,"id":"evt_1","actor":"brain","fact":{')


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_not_is_refused(number: float) -> None:
    with pytest.raises(UsageError, match="not finite"):
        drafted(ToolResult(call_id="1.0", outcome="ok", content="", duration_ms=number))
    with pytest.raises(UsageError, match="nothing was written"):
        drafted(AgentToolUse(request_seq=1, call_id="1.0", name="bash", input={"x": [number]}))


@pytest.mark.parametrize(
    "value", [{"x": (1, 2)}, {1: "x"}, {"x": b"bytes"}, {"x": {3}}, {"x": object()}, {"x": "\ud800"}]
)
def test_what_would_come_back_as_something_else_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing was written"):
        drafted(AgentToolUse(request_seq=1, call_id="1.0", name="bash", input=value))


def test_the_fact_that_is_returned_is_the_one_that_is_read() -> None:
    whole = ToolResult(call_id="1.0", outcome="ok", content="", duration_ms=5)
    body, fact = prepare(Draft("evt_1", "brain", whole))
    assert isinstance(fact, ToolResult)
    assert isinstance(fact.duration_ms, float)
    assert decode_body(body, "agent.tool_result")[2] == fact


def test_integers_of_any_size_are_kept() -> None:
    fact = AgentToolUse(request_seq=1, call_id="1.0", name="bash", input={"n": 2**200, "m": -(2**63) - 1})
    assert decode_body(drafted(fact), "agent.tool_use")[2] == fact


def test_a_newer_schema_is_refused_whatever_is_in_it() -> None:
    for body in (
        b'{"v":%d,"id":"e","actor":"a","fact":{"type":"user.message","content":[]}}',
        b'{"v":%d,"id":"e","actor":"a","fact":{"type":"user.message","text":"new shape"},"more":1}',
    ):
        with pytest.raises(SchemaTooNew, match="upgrade Holdfast"):
            decode_body(body % (codec.SCHEMA + 1), "user.message")
    with pytest.raises(SchemaTooNew, match=r"task\.opened"):
        decode_body(b'{"v":1,"id":"e","actor":"a","fact":{"type":"task.opened"}}', "task.opened")


@pytest.mark.parametrize(
    "body",
    [
        b'{"v":1,"id":"e","actor":"a","fact":{"type":"user.interrupt","reason":"r","mood":"new"}}',
        b'{"v":1,"id":"e","actor":"a","more":1,"fact":{"type":"user.interrupt"}}',
        b'{"v":1,"id":"e","actor":"a","fact":{"type":"user.cancel"}}',
        b'{"v":1,"id":"e","actor":"a","fact":{"type":"user.interrupt","reason":7}}',
        b'{"v":0,"id":"e","actor":"a","fact":{"type":"user.interrupt"}}',
        b'{"v":1,"id":"e","fact":{"type":"user.interrupt"}}',
        b'{"v":1,"id":"e","actor":"a","fact":{"type":"user.interrupt","reason":"\xff"}}',
        b'{"v":1',
        b"",
    ],
)
def test_nothing_of_a_body_is_skipped(body: bytes) -> None:
    with pytest.raises(LogDamaged):
        decode_body(body, "user.interrupt")


def test_an_older_schema_is_brought_up(monkeypatch: pytest.MonkeyPatch) -> None:
    old = b'{"v":1,"id":"e","actor":"a","fact":{"type":"user.interrupt","why":"r"}}'
    kept = b'{"v":1,"id":"e","actor":"a","fact":{"type":"user.cancel","reason":"r"}}'
    monkeypatch.setattr(codec, "SCHEMA", 3)
    monkeypatch.setitem(codec.UPCASTS, ("user.interrupt", 1), lambda f: {"type": f["type"], "because": f["why"]})
    monkeypatch.setitem(codec.UPCASTS, ("user.interrupt", 2), lambda f: {"type": f["type"], "reason": f["because"]})
    assert decode_body(old, "user.interrupt")[2] == FACT_TYPES["user.interrupt"](reason="r")
    assert decode_body(kept, "user.cancel")[2] == FACT_TYPES["user.cancel"](reason="r")


def test_what_is_left_out_is_empty() -> None:
    """A default that is not empty may change one day; then old logs would change their meaning."""
    wrong = []
    seen: list[msgspec.inspect.Type] = [msgspec.inspect.type_info(cls) for cls in FACT_TYPES.values()]
    while seen:
        kind = seen.pop()
        seen += [getattr(kind, name) for name in ("item_type", "value_type", "key_type") if hasattr(kind, name)]
        seen += getattr(kind, "types", ())
        if isinstance(kind, msgspec.inspect.StructType):
            seen += [field.type for field in kind.fields]
            config = kind.cls.__struct_config__
            assert config.frozen, kind.cls
            assert config.forbid_unknown_fields, kind.cls
            for field in kind.fields:
                made = () if field.default is msgspec.NODEFAULT else (field.default,)
                if field.default_factory is not msgspec.NODEFAULT:
                    made = (field.default_factory(),)
                if config.omit_defaults and any(value not in EMPTY for value in made):
                    wrong.append(f"{kind.cls.__name__}.{field.name}")
    assert wrong == []


def test_the_chain_is_what_the_rules_say() -> None:
    def sized(*fields: bytes) -> bytes:
        return b"".join(len(field).to_bytes(4, "big") + field for field in fields)

    prev, digest = body_digest(b"before"), body_digest(b"body")
    numbers = ((7).to_bytes(8, "big"), (3).to_bytes(8, "big"), (-5).to_bytes(8, "big", signed=True))
    whole = sized(prev, b"ses_1", *numbers, b"user.message", digest)
    assert chain(prev, "ses_1", 7, 3, -5, "user.message", digest) == hashlib.sha256(whole).digest()
    assert genesis("ses_1") == hashlib.sha256(sized(b"holdfast log 1", b"ses_1")).digest()
    assert genesis("ses_1") != genesis("ses_2")


def test_every_field_is_bound() -> None:
    prev, digest = body_digest(b"before"), body_digest(b"body")
    base = (prev, "ses_1", 7, 3, 5, "user.message", digest)
    others = (
        (digest, "ses_1", 7, 3, 5, "user.message", digest),
        (prev, "ses_2", 7, 3, 5, "user.message", digest),
        (prev, "ses_1", 8, 3, 5, "user.message", digest),
        (prev, "ses_1", 7, 4, 5, "user.message", digest),
        (prev, "ses_1", 7, 3, 6, "user.message", digest),
        (prev, "ses_1", 7, 3, 5, "user.messag", digest),
        (prev, "ses_1", 7, 3, 5, "user.message", prev),
    )
    assert len({chain(*base), *(chain(*other) for other in others)}) == 1 + len(others)


@given(facts)
def test_an_exported_line_is_flat_and_whole(fact: Any) -> None:
    event = Event("ses_1", 3, 1, 99, b"\1" * 32, "evt_1", "brain", type_of(fact), fact)
    line = msgspec.json.decode(msgspec.json.encode(export_line(event)))
    place = {"session_id": "ses_1", "seq": 3, "id": "evt_1", "type": type_of(fact), "at_us": 99, "epoch": 1}
    assert line == {**msgspec.json.decode(msgspec.json.encode(fact)), **place, "actor": "brain", "hash": "01" * 32}


def test_no_field_hides_an_events_place() -> None:
    place = {*Event.__struct_fields__, "at"} - {"fact"}
    assert {name for cls in FACT_TYPES.values() for name in cls.__struct_fields__} & place == set()
