"""Models of the chain that fail or cannot be asked: the next one answers, and the log says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from holdfast.errors import CannotRunSafely, ModelError, ModelErrorKind
from holdfast.facts.base import Usage
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import BreakerClosed, BreakerOpened
from holdfast.model.base import Model, ModelRequest, StreamPart
from tests.brain.stage import Stage, turn


async def _opened(stage: Stage, *fallbacks: str) -> None:
    agent = Agent(model="first", fallbacks=fallbacks)
    await stage.intake.open(stage.session_id, SessionCreated(goal="g", agent=agent, workspace=Workspace("/w")))


async def test_a_model_without_its_key_rests_and_the_next_one_is_asked() -> None:
    stage = Stage([turn("done")])

    def find(name: str) -> Model:
        if name == "first":
            raise CannotRunSafely("no key: set FIRST_API_KEY")
        return stage.model

    stage.doors = replace(stage.doors, model=find)
    await _opened(stage, "second")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    (breaker,) = await stage.facts(BreakerOpened)
    assert breaker.breaker == "provider:first"
    assert "FIRST_API_KEY" in breaker.detail
    assert [start.model for start in await stage.facts(ModelRequestStart)] == ["second"]
    assert not await stage.facts(BreakerClosed)


async def test_the_last_model_that_cannot_be_asked_is_an_error_and_the_session_stays() -> None:
    stage = Stage([turn("done")])

    def find(name: str) -> Model:
        raise CannotRunSafely(f"no key for {name}")

    stage.doors = replace(stage.doors, model=find)
    await _opened(stage, "second")
    with pytest.raises(CannotRunSafely, match="second"):
        await stage.wake()
    assert not await stage.facts(ModelRequestStart)
    row = await stage.store.find(stage.session_id)
    assert row.status == "runnable"


class Down:
    """A model that answers every request with one failure."""

    name = "first"

    def __init__(self, kind: ModelErrorKind, after_s: float | None) -> None:
        self.error = ModelError(kind, "not now", retry_after_s=after_s)

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Nothing."""
        return 0

    def cost_pico(self, usage: Usage) -> int | None:
        """Nothing."""
        return 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Fail."""
        raise self.error
        yield  # what makes it a stream


@pytest.mark.parametrize(
    ("kind", "after_s", "tries"),
    [("overloaded", 0.0, 3), ("rate_limited", 3_600.0, 1), ("auth", None, 1), ("unknown_model", None, 1)],
)
async def test_a_model_that_fails_gives_way(kind: ModelErrorKind, after_s: float | None, tries: int) -> None:
    stage = Stage([turn("", ("glob", {"pattern": "*"})), turn("done")])
    down = Down(kind, after_s)
    stage.doors = replace(stage.doors, model=lambda name: down if name == "first" else stage.model)
    await _opened(stage, "second")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    asked = [start.model for start in await stage.facts(ModelRequestStart)]
    assert asked == ["first"] * tries + ["second"] * 2, "a model that rests is not asked again for each turn"
    (breaker,) = await stage.facts(BreakerOpened)
    assert breaker.breaker == "provider:first"
    assert kind in breaker.detail
