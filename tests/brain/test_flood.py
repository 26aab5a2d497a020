"""More unread messages than a context holds: they are taken in by several requests, in order, and none is lost (S3)."""

from __future__ import annotations

import re

import pytest

from holdfast.facts.model import ContextCompacted, ContextReset, ModelRequestStart
from holdfast.facts.session import ContextPolicy, Limits
from tests.brain.contexts import note, shown
from tests.brain.stage import Stage, turn

MESSAGES = 400
"""About three times as many as the line below holds."""


def flooded(strategy: str, turns: int = 40) -> Stage:
    """A session whose model answers each batch with a word."""
    policy = ContextPolicy(strategy=strategy, line_tokens=1_500, keep_tokens=200)  # type: ignore[arg-type]
    scripted = [turn(f"Read {number}.") for number in range(turns)]
    return Stage(
        scripted,
        limits=Limits(context_tokens=2_000, context=policy),
        compaction=[turn(f"Summary {number}.") for number in range(turns)],
        handoff=[note("Note.") for _ in range(turns)],
    )


async def flood(stage: Stage) -> None:
    """Open the session, and send it everything before anybody wakes it."""
    await stage.open()
    row = await stage.store.find(stage.session_id)
    for number in range(MESSAGES):
        await stage.intake.send(row, f"message {number} of many, and a few words more")


def numbers(text: str) -> list[int]:
    """The messages that a text shows, by their numbers."""
    return [int(found) for found in re.findall(r"message (\d+) of many", text)]


@pytest.mark.parametrize("strategy", ["auto", "compaction", "reset", "hybrid"])
async def test_a_flood_is_read_in_batches(strategy: str) -> None:
    stage = flooded(strategy)
    await flood(stage)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    assert not outcome.state.pending
    requests = [request for request in stage.model.requests if request.purpose == "turn"]
    assert len(requests) >= 3
    assert max(request.input_tokens_estimate for request in requests) <= 2_000
    seen: list[int] = []
    for request in requests:
        fresh = [each for each in numbers(shown(request)) if each not in seen]
        assert fresh, "each request takes in more of them"
        seen += fresh
    assert seen == list(range(MESSAGES)), "in order, and each of them"
    starts = [fact for fact in await stage.facts(ModelRequestStart) if fact.purpose == "turn"]
    assert [fact.inputs_through for fact in starts] == sorted({fact.inputs_through for fact in starts})
    assert await stage.facts(ContextCompacted) or await stage.facts(ContextReset)


async def test_without_renewal_the_session_parks_once_the_context_is_full() -> None:
    stage = flooded("off")
    await flood(stage)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "context")
    (request,) = stage.model.requests
    assert numbers(shown(request)) == list(range(len(numbers(shown(request))))), "the oldest that fit were read"
    assert outcome.state.pending


async def test_a_message_that_is_too_long_by_itself_parks_the_session() -> None:
    stage = flooded("auto")
    await stage.open()
    await stage.intake.send(await stage.store.find(stage.session_id), "word " * 4_000)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "context")


async def test_nobody_sleeps_while_messages_wait() -> None:
    sleeping = turn("", ("sleep", {"seconds": 600}))
    stage = Stage(
        [sleeping, *(turn(f"Read {number}.") for number in range(40))],
        limits=Limits(context_tokens=2_000, context=ContextPolicy(line_tokens=1_500, keep_tokens=200)),
        compaction=[turn(f"Summary {number}.") for number in range(40)],
        handoff=[note("Note.") for _ in range(40)],
        tools=("sleep",),
    )
    await flood(stage)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
