"""Checks of what streams, how it ends, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import get_args

from holdfast.brain.response import Response
from holdfast.errors import ModelError, ModelErrorKind
from holdfast.facts.base import Usage, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.model.base import (
    Finish,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from holdfast.testing.model.rig import Check, Rig, Said, request

WORDS = "I look first. Then I run what has to be run, once, and look again at what came of it."
THOUGHT = "Where would it be? In the folder that the goal names, if it is there at all."
FIRST = ("bash", {"command": "ls -la 'a folder' && echo \"naïve\""})
SECOND = ("bash", {"command": "true", "note": {"deep": [1, 2, None]}})
LONG = ("bash", {"command": "echo " + "x" * 500})


async def ask(rig: Rig, responses: int = 0) -> list[StreamPart]:
    """Everything that streams."""
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


async def what_the_brain_makes_of_an_answer_is_what_was_said(rig: Rig) -> None:
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


async def nothing_costs_more_than_was_held_for_it(rig: Rig) -> None:
    rig.answers(Said(WORDS, THOUGHT, (FIRST,)))
    worst = rig.model.worst_case_pico(request())
    last = (await ask(rig))[-1]
    assert isinstance(last, Finish)
    cost = rig.model.cost_pico(last.usage)
    assert worst is not None, "the model of this rig has to have a price"
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
    assert caught is not None, "the request had to fail"
    assert caught.kind in get_args(ModelErrorKind)
    assert str(caught)
    assert rig.asked() == 1, "the model asked again by itself"


async def an_answer_that_is_abandoned_leaves_nothing_open(rig: Rig) -> None:
    rig.answers(Said(WORDS * 20, "", (LONG,)), Said(WORDS))
    stream = rig.model.stream(request())
    await anext(stream)
    close: Callable[[], Awaitable[None]] | None = getattr(stream, "aclose", None)
    assert close is not None, "the iterator of a model can be closed"
    await close()
    assert isinstance((await ask(rig, 1))[-1], Finish)


CHECKS: tuple[Check, ...] = (
    an_answer_ends_with_one_finish,
    words_and_reasoning_come_whole_and_in_order,
    a_call_begins_with_its_name_before_its_arguments,
    what_the_brain_makes_of_an_answer_is_what_was_said,
    the_reason_to_stop_follows_from_the_parts,
    nothing_costs_more_than_was_held_for_it,
    one_stream_is_one_request,
    a_request_that_fails_is_an_error_with_a_kind,
    an_answer_that_is_abandoned_leaves_nothing_open,
)
