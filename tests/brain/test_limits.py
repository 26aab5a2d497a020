"""Requests under a limit of their model or of an account: the brain waits, and parks after many waits (S15)."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest

from holdfast.brain.acts import people
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.session.limits import Limit
from tests.brain.stage import Stage, turn

READS = [turn("", ("read", {"path": "a"})), turn("", ("read", {"path": "a"})), turn("Done.")]


async def test_requests_keep_to_the_rate_of_their_model() -> None:
    stage = Stage(READS)
    await stage.intake.set_limit("model", "scripted", Limit(per_minute=300))
    await stage.run()
    assert [ended.status for ended in await stage.facts(ShiftEnded)] == ["done"]
    times = [event.at_us for event in await stage.events() if isinstance(event.fact, ModelRequestStart)]
    assert len(times) == 3
    assert all(later - before >= 200_000 for before, later in pairwise(times))


async def test_a_message_is_seen_by_the_request_that_waited() -> None:
    """While a request waits nothing is decided, so what arrives meanwhile is in it."""
    stage = Stage([turn("", ("read", {"path": "a"})), turn("Done.")])
    await stage.intake.set_limit("model", "scripted", Limit(per_minute=60))
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        while not await stage.facts(ModelRequestStart):
            await stage.store.wait(stage.session_id, len(await stage.events()))
        await stage.intake.send(await stage.store.find(stage.session_id), "use tabs")
    starts = [event for event in await stage.events() if isinstance(event.fact, ModelRequestStart)]
    assert len(starts) == 2
    (message,) = [event for event in await stage.events() if event.type == "user.message"]
    assert message.seq < starts[1].seq
    assert "use tabs" in str(stage.model.requests[1].messages)


async def test_a_session_that_waits_long_parks_until_it_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "HELD_TRIES", 0)
    stage = Stage(READS)
    await stage.intake.set_limit("model", "scripted", Limit(per_minute=1))
    await stage.run()
    (ended,) = await stage.facts(ShiftEnded)
    assert (ended.status, ended.reason) == ("parked", "provider")
    assert ended.detail == "the model scripted has a limit of 1 requests a minute, which others use now"
    (begun,) = [event.at_us for event in await stage.events() if isinstance(event.fact, ModelRequestStart)]
    assert 60_000_000 <= ended.due_us - begun <= 121_000_000
