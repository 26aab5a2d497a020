"""Bugs in the brain's model requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.brain import wake
from holdfast.brain.acts import model as model_act
from holdfast.brain.response import Response
from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd
from holdfast.session.actions import Action, PresumeRequest
from tests.sim.planted.kit import Bed

BED = Bed()


@BED.plant("S13", "only_whole_responses_count")
def a_broken_response_is_kept(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.fact
    latest: list[Response] = []
    made = Response.__init__

    def init(self: Response) -> None:
        made(self)
        latest[:] = [self]

    async def fact(self: Shift, *facts: Fact) -> list[Event]:
        end = facts[-1]
        if isinstance(end, ModelRequestEnd) and end.outcome == "error":
            return await whole(self, *latest[0].finished_part(end.request_seq), *facts)
        return await whole(self, *facts)

    patch.setattr(Response, "__init__", init)
    patch.setattr(Shift, "fact", fact)


@BED.plant("S14", "only_whole_responses_count", first=29)
def an_interrupted_response_keeps_its_calls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Response, "finished_part", Response.facts)


@BED.plant("S14", "only_whole_responses_count", first=29)
def an_interrupted_response_keeps_unsigned_thinking(patch: pytest.MonkeyPatch) -> None:
    def kept(self: Response, request_seq: int) -> list[Fact]:
        return [fact for fact in self.facts(request_seq) if type(fact).__name__ != "AgentToolUse"]

    patch.setattr(Response, "finished_part", kept)


@BED.plant("S4", "responses_are_committed_whole")
def a_response_is_appended_in_pieces(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.fact

    async def fact(self: Shift, *facts: Fact) -> list[Event]:
        if isinstance(facts[-1], ModelRequestEnd) and len(facts) > 1:
            await whole(self, *facts[:-1])
            return await whole(self, facts[-1])
        return await whole(self, *facts)

    patch.setattr(Shift, "fact", fact)


@BED.plant("S4", "responses_are_committed_whole")
def cut_words_are_appended_alone(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.fact

    async def fact(self: Shift, *facts: Fact) -> list[Event]:
        end = facts[-1]
        if isinstance(end, ModelRequestEnd) and end.outcome == "cancelled" and len(facts) > 1:
            await whole(self, *facts[:-1])
            return await whole(self, end)
        return await whole(self, *facts)

    patch.setattr(Shift, "fact", fact)


@BED.plant("S13", "requests_settle_once", first=5)
def a_failed_request_ends_twice(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.fact

    async def fact(self: Shift, *facts: Fact) -> list[Event]:
        if isinstance(facts[-1], ModelRequestEnd) and facts[-1].outcome == "error":
            facts = (*facts, facts[-1])
        return await whole(self, *facts)

    patch.setattr(Shift, "fact", fact)


@BED.plant("S13", "costs_are_right")
def a_lost_request_costs_nothing(patch: pytest.MonkeyPatch) -> None:
    whole = wake._act

    async def act(shift: Shift, action: Action) -> None:
        if isinstance(action, PresumeRequest):
            action = PresumeRequest(action.request_seq, 0)
        await whole(shift, action)

    patch.setattr(wake, "_act", act)


@BED.plant("S15", "costs_are_right")
def an_interrupted_request_costs_nothing(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.fact

    async def fact(self: Shift, *facts: Fact) -> list[Event]:
        end = facts[-1]
        if isinstance(end, ModelRequestEnd) and end.outcome == "cancelled" and end.cost_pico:
            facts = (*facts[:-1], msgspec.structs.replace(end, cost_pico=0))
        return await whole(self, *facts)

    patch.setattr(Shift, "fact", fact)


@BED.plant("S13", "requests_are_logged_first")
def the_wire_is_touched_before_the_log(patch: pytest.MonkeyPatch) -> None:
    async def begin(shift: Shift, model: Any, request: Any, **more: Any) -> Any:
        async for _ in model.stream(request):
            break
        return await whole(shift, model, request, **more)

    whole = model_act.begin
    patch.setattr(model_act, "begin", begin)


@BED.plant("S14", "stops_are_prompt", first=29)
def a_stream_is_not_stopped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_act, "_stream", model_act._consume)
