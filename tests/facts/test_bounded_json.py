"""JSON from outside, decoded with a bound on its nesting."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import LogDamaged
from holdfast.facts import bounded_json
from holdfast.facts.bounded_json import DEPTH_MAX, TOO_DEEP
from holdfast.facts.codec import decode_body, stored_envelope

SHAPES = {
    "arrays": ("[", "]"),
    "objects": ('{"a":', "}"),
    "both": ('[{"a":', "}]"),
    "blanks": ("[ ", " ]"),
    "brackets in text": ('{"[[{{":', "}"),
}


def deep(shape: str, levels: int) -> str:
    """JSON of so many levels, of an object or an array and so on."""
    opening, closing = SHAPES[shape]
    each = opening.count("[") + opening.count("{") if shape == "both" else 1
    return opening * (levels // each) + "1" + closing * (levels // each)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("levels", [DEPTH_MAX + 2, 1_100, 100_000])
def test_what_is_nested_too_deep_is_refused(shape: str, levels: int) -> None:
    with pytest.raises(msgspec.DecodeError, match=TOO_DEEP):
        bounded_json.decode(deep(shape, levels))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_not_is_decoded(shape: str) -> None:
    text = deep(shape, DEPTH_MAX)
    assert bounded_json.decode(text) == msgspec.json.decode(text)
    assert not bounded_json.too_deep(bounded_json.decode(text))


@given(st.integers(1, 130))
def test_the_bound_is_where_it_is_said_to_be(levels: int) -> None:
    value: object = 1
    for _ in range(levels):
        value = [value]
    assert bounded_json.too_deep(value) == (levels > DEPTH_MAX)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stored_body_that_is_nested_too_deep_is_damage_and_no_crash(shape: str) -> None:
    fact = f'{{"type":"agent.tool_use","request_seq":1,"call_id":"c","name":"n","input":{{"a":{deep(shape, 5_000)}}}}}'
    for version in (1, 5, 99):
        body = f'{{"v":{version},"id":"e","actor":"brain","fact":{fact}}}'.encode()
        with pytest.raises(LogDamaged):
            decode_body(body, "agent.tool_use")
        with pytest.raises(LogDamaged):
            stored_envelope(body)
