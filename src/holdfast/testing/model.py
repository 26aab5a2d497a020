"""Conformance kit of models (S13 to S15).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each check on your model:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_model(name):
        async with my_rig() as rig:
            await CHECKS[name](rig)

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, get_args

from holdfast.brain.response import Response
from holdfast.errors import ModelError, ModelErrorKind
from holdfast.facts.base import Usage, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.model.base import (
    Finish,
    Model,
    ModelRequest,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolSpec,
)
from holdfast.session.context.conversation import Message, TextPart


class Said(NamedTuple):
    """A response: text, thinking, and calls as name and input."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


class Rig(Protocol):
    """A model with a price, and control over its provider."""

    @property
    def model(self) -> Model:
        """The model under test."""
        ...

    def answers(self, *said: Said) -> None:
        """Answer the next requests with these responses, in order."""
        ...

    def fails(self) -> None:
        """Fail the next request with a transient error."""
        ...

    def asked(self) -> int:
        """The number of requests since the last `answers`."""
        ...


Check = Callable[[Rig], Awaitable[None]]

BASH = ToolSpec(
    "bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
)


def request(responses: int = 0, attempt: int = 1) -> ModelRequest:
    """A request for the response after `responses` others."""
    messages = (Message("user", (TextPart("the goal"),)),)
    return ModelRequest("turn", "the prompt", messages, (BASH,), 4_096, responses, attempt, 100)


WORDS = "I look first. Then I run what has to be run, once, and look again at what came of it."
THOUGHT = "Where would it be? In the folder that the goal names, if it is there at all."
FIRST = ("bash", {"command": "ls -la 'a folder' && echo \"naïve\""})
SECOND = ("bash", {"command": "true", "note": {"deep": [1, 2, None]}})
LONG = ("bash", {"command": "echo " + "x" * 500})


async def ask(rig: Rig, responses: int = 0) -> list[StreamPart]:
    """All parts of the response to a request."""
    return [part async for part in rig.model.stream(request(responses))]


async def an_answer_ends_with_one_finish(rig: Rig) -> None:
    rig.answers(Said(WORDS), Said(WORDS, "", (FIRST,)))
    for responses in (0, 1):
        parts = await ask(rig, responses)
        assert isinstance(parts[-1], Finish)
        assert sum(isinstance(part, Finish) for part in parts) == 1


async def words_and_reasoning_come_whole_and_in_order(rig: Rig) -> None:
    rig.answers(Said(WORDS, THOUGHT, (FIRST,)))
    parts = await ask(rig)
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == WORDS
    assert "".join(part.text for part in parts if isinstance(part, ThinkingDelta)) == THOUGHT
    kinds = [type(part) for part in parts]
    assert kinds.index(ThinkingDelta) < kinds.index(TextDelta) < kinds.index(ToolCallStart)


async def a_call_begins_with_its_name_before_its_arguments(rig: Rig) -> None:
    rig.answers(Said("", "", (LONG, SECOND)))
    begun: set[int] = set()
    for part in await ask(rig):
        if isinstance(part, ToolCallStart):
            assert part.name == "bash"
            assert part.index not in begun
            begun.add(part.index)
        elif isinstance(part, ToolCallDelta):
            assert part.index in begun
    assert len(begun) == 2


async def the_brain_reads_an_answer_as_it_was_said(rig: Rig) -> None:
    rig.answers(Said(WORDS, THOUGHT, (FIRST, SECOND, LONG)))
    response = Response()
    for part in await ask(rig):
        response.add(part)
    facts = response.facts(7)
    assert [text_of(fact.content) for fact in facts if isinstance(fact, AgentMessage)] == [WORDS]
    assert [fact.text for fact in facts if isinstance(fact, AgentThinking) and fact.text] == [THOUGHT]
    uses = [fact for fact in facts if isinstance(fact, AgentToolUse)]
    assert [(use.name, use.input, use.malformed) for use in uses] == [(*call, "") for call in (FIRST, SECOND, LONG)]
    assert [use.call_id for use in uses] == ["7.0", "7.1", "7.2"]
    json.dumps([fact.details for fact in facts if isinstance(fact, AgentMessage | AgentThinking | AgentToolUse)])


async def the_reason_to_stop_follows_from_the_parts(rig: Rig) -> None:
    rig.answers(Said(WORDS), Said("", "", (FIRST,)))
    for responses, reason in ((0, "end_turn"), (1, "tool_use")):
        last = (await ask(rig, responses))[-1]
        assert isinstance(last, Finish)
        assert last.stop_reason == reason


async def no_answer_costs_more_than_its_worst_case(rig: Rig) -> None:
    rig.answers(Said(WORDS, THOUGHT, (FIRST,)))
    worst = rig.model.worst_case_pico(request())
    last = (await ask(rig))[-1]
    assert isinstance(last, Finish)
    cost = rig.model.cost_pico(last.usage)
    assert worst is not None, "the model of a rig must have a price"
    assert cost is not None
    assert 0 < cost <= worst
    assert rig.model.cost_pico(Usage()) == 0


async def one_stream_is_one_request(rig: Rig) -> None:
    rig.answers(Said(WORDS), Said(WORDS))
    await ask(rig)
    assert rig.asked() == 1
    await ask(rig, 1)
    assert rig.asked() == 2


async def a_request_that_fails_is_an_error_with_a_kind(rig: Rig) -> None:
    rig.answers(Said(WORDS))
    rig.fails()
    caught: ModelError | None = None
    try:
        await ask(rig)
    except ModelError as error:
        caught = error
    assert caught is not None, "the request must fail"
    assert caught.kind in get_args(ModelErrorKind)
    assert str(caught)
    assert rig.asked() == 1, "the model retried by itself"


async def an_answer_that_is_abandoned_leaves_nothing_open(rig: Rig) -> None:
    rig.answers(Said(WORDS * 20, "", (LONG,)), Said(WORDS))
    stream = rig.model.stream(request())
    await anext(stream)
    close: Callable[[], Awaitable[None]] | None = getattr(stream, "aclose", None)
    assert close is not None, "a model's stream must have aclose"
    await close()
    assert isinstance((await ask(rig, 1))[-1], Finish)


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        an_answer_ends_with_one_finish,
        words_and_reasoning_come_whole_and_in_order,
        a_call_begins_with_its_name_before_its_arguments,
        the_brain_reads_an_answer_as_it_was_said,
        the_reason_to_stop_follows_from_the_parts,
        no_answer_costs_more_than_its_worst_case,
        one_stream_is_one_request,
        a_request_that_fails_is_an_error_with_a_kind,
        an_answer_that_is_abandoned_leaves_nothing_open,
    )
}
"""Name → check, for example `an_answer_ends_with_one_finish`."""

__all__ = ["CHECKS", "Check", "Rig", "Said", "request"]
