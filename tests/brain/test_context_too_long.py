"""A model that takes less than our line says so: the context is renewed at a lower one, and the work goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from holdfast.errors import ModelError
from holdfast.facts.base import Usage
from holdfast.facts.model import ContextCompacted, ContextReset, ModelRequestEnd
from holdfast.model.base import Model, ModelRequest, StreamPart
from holdfast.session.context.conversation import ToolResultPart
from tests.brain.stage import Stage, turn


class Small:
    """A model that takes so many characters of tool output at most."""

    def __init__(self, inner: Model, most: int) -> None:
        self.name = inner.name
        self._inner = inner
        self._most = most

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """As the inner one."""
        return self._inner.worst_case_pico(request)

    def cost_pico(self, usage: Usage) -> int | None:
        """As the inner one."""
        return self._inner.cost_pico(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The inner one's parts, unless it is too much."""
        parts = [part for message in request.messages for part in message.parts]
        size = sum(len(part.content) for part in parts if isinstance(part, ToolResultPart))
        if request.purpose == "turn" and size > self._most:
            raise ModelError("context_too_long", "the prompt is longer than this model takes")
        async for part in self._inner.stream(request):
            yield part


def _stage(turns: int, most: int) -> Stage:
    looks = [turn("", ("bash", {"command": f"look {number}"})) for number in range(turns)]
    stage = Stage([*looks, turn("done")], effect=lambda command, files: (0, f"{command} " + "x" * 4_000))
    small = Small(stage.model, most)
    stage.doors = replace(stage.doors, model=lambda name: small)
    return stage


async def test_the_work_goes_on_at_a_lower_line() -> None:
    stage = _stage(12, 20_000)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    kinds = [end.error_kind for end in await stage.facts(ModelRequestEnd) if end.outcome == "error"]
    assert "context_too_long" in kinds
    assert set(kinds) == {"context_too_long"}
    assert len(kinds) <= 3, "it learns from being told"
    row = await stage.store.find(stage.session_id)
    assert row.turns == outcome.state.responses == 13, "a note of the harness is no turn"
    assert await stage.facts(ContextCompacted) or await stage.facts(ContextReset)


async def test_one_turn_that_is_too_long_is_handed_over() -> None:
    stage = _stage(1, 100)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(await stage.facts(ContextReset)) == 1


async def test_what_cannot_be_made_shorter_parks() -> None:
    stage = _stage(1, -1)
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "context")
    assert "longer than this model takes" in outcome.ended.detail
