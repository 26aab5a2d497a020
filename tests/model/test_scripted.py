"""The scripted model: the turn it serves, how it streams, how it fails, what it costs, bad scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ModelError, UsageError
from holdfast.facts.base import Usage
from holdfast.facts.model import Handoff
from holdfast.model.base import (
    Finish,
    ModelRequest,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from holdfast.model.scripted import DONE, EXAMPLE, ScriptedModel, load_script, parse_script
from holdfast.session.context.conversation import Message, TextPart
from holdfast.session.money import pico_from_usd


class VirtualClock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_us(self) -> int:
        return round(sum(self.slept) * 1_000_000)

    def monotonic_s(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await anyio.lowlevel.checkpoint()


def model_of(*turns: dict[str, Any], clock: VirtualClock | None = None, **top: Any) -> ScriptedModel:
    script = parse_script(json.dumps({"turns": turns, **top}))
    return ScriptedModel(script, clock or VirtualClock())


def request(responses: int = 0, attempt: int = 1, words: str = "do it") -> ModelRequest:
    messages = (Message("user", (TextPart(words),)),)
    return ModelRequest("turn", "system", messages, (), 1000, responses, attempt)


def parts_of(model: ScriptedModel, asked: ModelRequest) -> tuple[list[StreamPart], ModelError | None]:
    """What streams, and the error that ends it, if one does."""
    parts: list[StreamPart] = []

    async def collect() -> ModelError | None:
        try:
            async for part in model.stream(asked):
                parts.append(part)
        except ModelError as error:
            return error
        return None

    return parts, anyio.run(collect)


def text_of(parts: list[StreamPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


def arguments_of(parts: list[StreamPart], index: int) -> str:
    return "".join(part.fragment for part in parts if isinstance(part, ToolCallDelta) and part.index == index)


LONG = "I look at the workspace first, then I change one thing after the other, with care."

FULL = {
    "text": LONG,
    "thinking": "Where would a careful person begin with this?",
    "tool_calls": [
        {"name": "bash", "input": {"command": "printf '%s\\n' one two three four five six"}},
        {"name": "read", "input": {"file_path": "ä/b.py", "view_range": [1, -1]}},
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 50, "cache_read_tokens": 7},
}


def test_a_turn_streams_in_pieces_and_is_whole() -> None:
    parts, error = parts_of(model_of(FULL), request())
    assert error is None
    thinking = [part for part in parts if isinstance(part, ThinkingDelta)]
    assert "".join(part.text for part in thinking) == FULL["thinking"]
    assert [bool(part.signature) for part in thinking] == [False] * (len(thinking) - 1) + [True]
    assert text_of(parts) == LONG
    assert sum(isinstance(part, TextDelta) for part in parts) > 2
    starts = [part for part in parts if isinstance(part, ToolCallStart)]
    assert [(part.index, part.name) for part in starts] == [(0, "bash"), (1, "read")]
    assert len({part.provider_id for part in starts}) == 2
    for index in (0, 1):
        assert json.loads(arguments_of(parts, index)) == FULL["tool_calls"][index]["input"]  # type: ignore[index]
        assert sum(isinstance(part, ToolCallDelta) and part.index == index for part in parts) > 1
    assert parts[-1] == Finish("tool_use", Usage(1000, 50, 7, 0))
    assert sum(isinstance(part, Finish) for part in parts) == 1


def test_kinds_stream_in_order_and_a_call_starts_before_its_arguments() -> None:
    parts, _ = parts_of(model_of(FULL), request())
    order = [type(part).__name__ for part in parts]
    assert list(dict.fromkeys(order)) == ["ThinkingDelta", "TextDelta", "ToolCallStart", "ToolCallDelta", "Finish"]
    assert order[-2] == "ToolCallDelta"
    second = parts.index(ToolCallStart(1, "read", "scripted_0_1"))
    assert all(part.index == 0 for part in parts[:second] if isinstance(part, ToolCallDelta))


def test_the_turn_is_the_number_of_responses_whatever_was_served_before() -> None:
    model = model_of({"text": "one"}, {"text": "two"}, {"text": "three"})
    assert [text_of(parts_of(model, request(index))[0]) for index in (2, 0, 1, 1)] == ["three", "one", "two", "two"]


@pytest.mark.parametrize("responses", [1, 2, 50])
def test_after_the_last_turn_it_says_that_it_is_done(responses: int) -> None:
    model = model_of({"text": "one"}, price={"input_per_mtok": 3.0, "output_per_mtok": 15.0})
    parts, error = parts_of(model, request(responses))
    assert (text_of(parts), error) == (DONE, None)
    assert parts[-1] == Finish("end_turn", Usage())
    assert model.worst_case_pico(request(responses)) == 0


@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "timeout", "auth", "invalid_request"])
def test_an_error_is_served_once_before_any_part(kind: str) -> None:
    model = model_of({**FULL, "error": kind, "retry_after_s": 2.5})
    parts, error = parts_of(model, request())
    assert parts == []
    assert error is not None
    assert (error.kind, error.retry_after_s) == (kind, 2.5)
    retried, error = parts_of(model, request(attempt=2))
    assert error is None
    assert retried == parts_of(model_of(FULL), request())[0]


def test_a_bad_stream_breaks_off_in_the_middle() -> None:
    model = model_of({**FULL, "error": "bad_stream"})
    parts, error = parts_of(model, request())
    assert error is not None
    assert (error.kind, error.retry_after_s) == ("bad_stream", None)
    whole, _ = parts_of(model, request(attempt=2))
    assert 1 < len(parts) < len(whole) - 1
    assert parts == whole[: len(parts)]
    assert isinstance(whole[-1], Finish)


def test_a_refusal_is_an_answer_without_calls() -> None:
    model = model_of({**FULL, "error": "refusal"})
    parts, error = parts_of(model, request())
    assert error is None
    assert text_of(parts) == LONG
    assert not any(isinstance(part, ToolCallStart) for part in parts)
    assert parts[-1] == Finish("refusal", Usage(1000, 50, 7, 0))
    assert parts_of(model, request(attempt=2))[0] == parts_of(model_of(FULL), request())[0]


@pytest.mark.parametrize("error", [None, "timeout", "bad_stream", "refusal"])
def test_the_delay_passes_before_the_first_part(error: str | None) -> None:
    clock = VirtualClock()
    model = model_of({**FULL, "delay_s": 12.5, "error": error}, clock=clock)

    async def first() -> None:
        stream = model.stream(request())
        assert clock.slept == []
        try:
            async for _ in stream:
                assert clock.slept == [12.5]
        except ModelError:
            pass
        assert clock.slept == [12.5]

    anyio.run(first)


def test_no_delay_asks_nothing_of_the_clock() -> None:
    clock = VirtualClock()
    parts_of(model_of(FULL, clock=clock), request())
    assert clock.slept == []


def test_a_response_can_be_abandoned_between_parts() -> None:
    async def abandon() -> int:
        seen = 0
        with anyio.CancelScope() as scope:
            async for _ in model_of(FULL).stream(request()):
                seen += 1
                if seen == 3:
                    scope.cancel()
        assert scope.cancelled_caught
        return seen

    assert anyio.run(abandon) == 3


@pytest.mark.parametrize("text", ["{bad json", "[1, 2]", '"words"', '{"command": "ls"'])
def test_a_malformed_call_streams_its_text_as_it_is(text: str) -> None:
    parts, error = parts_of(model_of({"tool_calls": [{"name": "bash", "malformed": text}]}), request())
    assert error is None
    assert arguments_of(parts, 0) == text
    assert isinstance(parts[-1], Finish)
    assert parts[-1].stop_reason == "tool_use"


def test_money_follows_the_declared_usage() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 50, "cache_read_tokens": 10, "cache_write_tokens": 100}
    model = model_of({"text": "x", "usage": usage}, price={"input_per_mtok": 3.0, "output_per_mtok": 15.0})
    expected = pico_from_usd("0.00408")
    assert model.worst_case_pico(request()) == expected
    assert model.cost_pico(Usage(1000, 50, 10, 100)) == expected
    dear = {"input_per_mtok": 3.0, "output_per_mtok": 15.0, "cache_read_per_mtok": 0.3, "cache_write_per_mtok": 3.75}
    model = model_of({"text": "x", "usage": usage}, price=dear)
    assert model.worst_case_pico(request()) == pico_from_usd("0.004128")


def test_without_a_price_the_cost_is_unknown_and_never_zero() -> None:
    model = model_of(FULL)
    assert model.worst_case_pico(request()) is None
    assert model.cost_pico(Usage(1000, 50)) is None


def test_a_turn_without_usage_is_estimated_from_what_was_sent_and_said() -> None:
    model = model_of({"text": "x" * 400})
    small = parts_of(model, request())[0][-1]
    large = parts_of(model, request(words="do it " * 1000))[0][-1]
    assert isinstance(small, Finish)
    assert isinstance(large, Finish)
    assert small.usage.output_tokens == 100
    assert large.usage.input_tokens - small.usage.input_tokens == pytest.approx(1500, rel=0.01)


turns = st.fixed_dictionaries(
    {"text": st.text(max_size=80), "thinking": st.text(max_size=60)},
    optional={
        "tool_calls": st.lists(
            st.fixed_dictionaries(
                {"name": st.text(min_size=1, max_size=8), "input": st.dictionaries(st.text(), st.text())}
            ),
            max_size=3,
        ),
        "usage": st.fixed_dictionaries(
            {}, optional={"input_tokens": st.integers(0, 10**6), "output_tokens": st.integers(0, 10**5)}
        ),
    },
)


@given(turn=turns)
def test_any_turn_comes_whole_and_costs_its_worst_case(turn: dict[str, Any]) -> None:
    model = model_of(turn, price={"input_per_mtok": 3.0, "output_per_mtok": 15.0})
    parts, error = parts_of(model, request())
    assert error is None
    assert text_of(parts) == turn["text"]
    for index, call in enumerate(turn.get("tool_calls", [])):
        assert json.loads(arguments_of(parts, index)) == call["input"]
    finish = parts[-1]
    assert isinstance(finish, Finish)
    assert finish.stop_reason == ("tool_use" if turn.get("tool_calls") else "end_turn")
    assert model.cost_pico(finish.usage) == model.worst_case_pico(request())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1, column 1"),
        ('{"turns": [\n  {"text": "a",}\n]}', "line 2, column 16"),
        ("[]", "Expected `object`"),
        ("{}", "`turns`"),
        ('{"turns": {}}', "`script.turns`"),
        ('{"turns": [{"text": 1}]}', "`script.turns[0].text`"),
        ('{"turns": [{}, {"txt": "a"}]}', "`txt` - at `script.turns[1]`"),
        ('{"turns": [{"tool_calls": [{"input": {}}]}]}', "`script.turns[0].tool_calls[0]`"),
        ('{"turns": [{"tool_calls": [{"name": "", "input": {}}]}]}', "`script.turns[0].tool_calls[0].name`"),
        ('{"turns": [{"tool_calls": [{"name": "bash", "input": "ls"}]}]}', "`script.turns[0].tool_calls[0].input`"),
        ('{"turns": [{"tool_calls": [{"name": "b", "input": {"a": 1}, "malformed": "{"}]}]}', "not both"),
        ('{"turns": [{"usage": {"input_tokens": -1}}]}', "`script.turns[0].usage.input_tokens`"),
        ('{"turns": [{"usage": {"input_tokens": 1.5}}]}', "`script.turns[0].usage.input_tokens`"),
        ('{"turns": [{"delay_s": -1}]}', "`script.turns[0].delay_s`"),
        ('{"turns": [{"delay_s": NaN}]}', "NaN is not a JSON number"),
        ('{"turns": [{"delay_s": 1e999}]}', "`script.turns[0].delay_s`"),
        ('{"turns": [{"error": "broken"}]}', "`script.turns[0].error`"),
        ('{"turns": [{}, {"retry_after_s": 1}]}', "`script.turns[1]`"),
        ('{"turns": [], "price": {"input_per_mtok": 3.0}}', "`output_per_mtok`"),
        ('{"turns": [], "prise": {}}', "`prise`"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_script_names_the_file_the_place_and_a_right_example(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_script(path)
    message = str(caught.value)
    assert says in message
    assert str(path) in message
    assert message.endswith(EXAMPLE)
    assert "\n" not in message
    assert caught.value.exit_code == 2


def test_the_example_in_the_message_is_right() -> None:
    parse_script(EXAMPLE)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.json cannot be read: No such file.*--model scripted:FILE"):
        load_script(tmp_path / "absent.json")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_script(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"turns": [{"text": "\xe4"}]}')
    with pytest.raises(UsageError, match=r"latin\.json.*byte 22 is not UTF-8"):
        load_script(tmp_path / "latin.json")


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"turns": [{"text": "hello"}]}')
    model = ScriptedModel.from_file(path, VirtualClock())
    assert text_of(parts_of(model, request())[0]) == "hello"
    assert model.name == f"scripted:{path}"


# --- compactions and handoffs --------------------------------------------------------------------


def asked_for(purpose: Any, responses: int = 0, words: str = "do it") -> ModelRequest:
    return msgspec.structs.replace(request(responses, words=words), purpose=purpose)


def test_each_purpose_has_turns_of_its_own_and_its_own_count() -> None:
    model = model_of({"text": "a turn"}, compaction=[{"text": "a summary"}], handoff=[{"text": "a note"}])
    said = [text_of(parts_of(model, asked_for(purpose))[0]) for purpose in ("turn", "compaction", "handoff")]
    assert said == ["a turn", "a summary", "a note"]


def test_after_them_comes_what_follows_from_what_was_shown() -> None:
    model = model_of({"text": "a turn"})
    for purpose in ("compaction", "handoff"):
        one, other = asked_for(purpose, 3), asked_for(purpose, 3, words="do that")
        said = text_of(parts_of(model, one)[0])
        assert said == text_of(parts_of(model, one)[0])
        assert said != text_of(parts_of(model, other)[0])
        assert "5 characters" in said
        assert "do it" not in said
    note = msgspec.json.decode(text_of(parts_of(model, asked_for("handoff"))[0]), type=Handoff)
    assert note.done
    assert note.next


def test_a_wrong_turn_of_another_list_is_named_too() -> None:
    with pytest.raises(UsageError, match=r"script\.handoff\[0\]"):
        parse_script(json.dumps({"turns": [], "handoff": [{"retry_after_s": 3}]}))
