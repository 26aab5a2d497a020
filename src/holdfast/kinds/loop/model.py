"""The model of a loop's session: code that does what the loop's latest plan says. A pure function of the request."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from anyio.lowlevel import checkpoint

from holdfast.errors import ModelError
from holdfast.facts.base import Usage
from holdfast.kinds import LOOP
from holdfast.kinds.loop.plan import ASK, Plan, Step, asking
from holdfast.kinds.loop.spec import STEP
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.session.conversation import ToolCallPart, ToolResultPart


def plan_of(request: ModelRequest) -> Plan | None:
    """The plan that the latest result has; None when there is none.

    Notes and messages may follow it. They keep nothing from being done: the next plan has what a person said. Where
    nothing would be done, it is made anew.
    """
    last = request.messages[-1] if request.messages else None
    results = [part for part in last.parts if isinstance(part, ToolResultPart)] if last is not None else []
    if last is None or last.role != "user" or not results or results[-1].name != STEP or results[-1].is_error:
        return None
    plan = msgspec.json.decode(results[-1].content, type=Plan)
    followed = last.parts[-1] is not results[-1]
    return None if followed and plan.kind in ("rest", "done", "failed") else plan


def trouble_of(request: ModelRequest) -> str:
    """Why the call that makes the plan failed, when it was asked for alone; empty when it did not.

    What keeps it from the workspace will not go away by asking again, so a person is asked.
    """
    if len(request.messages) < 2 or plan_of(request) is not None:
        return ""
    asked, answered = request.messages[-2:]
    names = [part.name for part in asked.parts if isinstance(part, ToolCallPart)]
    last = answered.parts[-1]
    if names not in ([STEP], [ASK, STEP]) or not isinstance(last, ToolResultPart):
        return ""
    return "" if last.content.startswith("Not run:") else last.content


class LoopModel:
    """Answers with the calls of the plan. Its price is what the command of the loop said that it cost."""

    def __init__(self) -> None:
        self.name = LOOP
        self._cost_pico: int | None = 0

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """What has to be free before an iteration begins: anything at all, since nobody knows what it will cost."""
        plan = plan_of(request)
        return 1 if plan is not None and plan.kind == "work" else 0

    def cost_pico(self, usage: Usage) -> int | None:
        """What the iteration before cost, as its command said; None when it did not say."""
        return self._cost_pico

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The calls of the plan; without one, the call that makes it. Raises `ModelError` where the loop has failed."""
        await checkpoint()
        plan = plan_of(request)
        self._cost_pico = plan.cost_pico if plan is not None else 0
        if plan is not None and plan.kind == "failed":
            raise ModelError("invalid_request", plan.say)
        calls: tuple[Step, ...] = (Step(STEP, {}, "step"),) if plan is None else plan.calls
        if plan is None and (trouble := trouble_of(request)):
            calls = asking("The loop cannot go on. Set right what is in the way, then approve.", trouble)
        if plan is not None and plan.say:
            yield TextDelta(plan.say)
        for index, call in enumerate(calls):
            yield ToolCallStart(index, call.name, f"loop_{request.responses}_{index}")
            yield ToolCallDelta(index, msgspec.json.encode(call.input).decode())
        used = plan.usage if plan is not None else Usage()
        yield Finish("tool_use" if calls else "end_turn", used or Usage(), counted=used is not None)
