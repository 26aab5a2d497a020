"""Agent of a loop: its request, kept in the declaration of its tools, and its model, which is code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from anyio.lowlevel import checkpoint

from holdfast.errors import ModelError
from holdfast.facts.base import Usage
from holdfast.facts.session import Agent, CustomTool
from holdfast.kinds import LOOP
from holdfast.kinds.loop.plan import ASK, LOOK, NEXT, RESTORE, STEP, LoopSpec, Plan, asking
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.session.context.conversation import ToolCallPart, ToolResultPart

_KEY = "x-holdfast-loop"


def loop_agent(spec: LoopSpec) -> Agent:
    """The agent of a session with that loop. Its tools may be repeated: the second time they find their work done."""
    request = {_KEY: msgspec.json.decode(msgspec.json.encode(spec))}
    described = {
        LOOK: "See what the command of the loop left behind. Changes nothing.",
        RESTORE: "Put back what the command of the loop must not change.",
        STEP: "Record the iteration that has ended, and plan the next one.",
    }
    tools = []
    for name, text in described.items():
        schema = {"type": "object", "properties": {}, **(request if name == STEP else {})}
        tools.append(CustomTool(name, text, schema, on_unknown="retry", timeout_s=600.0, read_only=name == LOOK))
    return Agent(model=LOOP, name="loop", tools=("bash", ASK), custom=tuple(tools))


def spec_of(agent: Agent) -> LoopSpec | None:
    """The loop of a session with that agent; None when it has none."""
    step = next((tool for tool in agent.custom if tool.name == STEP), None)
    return msgspec.convert(step.input_schema.get(_KEY), LoopSpec) if step is not None and agent.model == LOOP else None


def plan_of(request: ModelRequest) -> Plan | None:
    """The plan in the latest result; None when there is none.

    Notes and messages may follow it. They do not keep its work from being done: the next plan has the messages. A plan
    without work is made anew.
    """
    last = request.messages[-1] if request.messages else None
    results = [part for part in last.parts if isinstance(part, ToolResultPart)] if last is not None else []
    if last is None or last.role != "user" or not results or results[-1].name != STEP or results[-1].is_error:
        return None
    plan = msgspec.json.decode(results[-1].content, type=Plan)
    followed = last.parts[-1] is not results[-1]
    return None if followed and plan.kind in ("rest", "done", "failed") else plan


def _trouble(request: ModelRequest) -> str:
    """The error of the call that makes the plan, when it was the only work; empty when it did not fail."""
    if len(request.messages) < 2:
        return ""
    asked, answered = request.messages[-2:]
    names = [part.name for part in asked.parts if isinstance(part, ToolCallPart)]
    last = answered.parts[-1]
    if names not in ([STEP], [ASK, STEP]) or not isinstance(last, ToolResultPart):
        return ""
    return "" if last.content.startswith("Not run:") else last.content


class LoopModel:
    """Model that answers with the calls of the plan. Its price is the cost that the loop's command reported."""

    def __init__(self) -> None:
        self.name = LOOP
        self._cost_pico: int | None = 0

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """The least amount, which must be free before an iteration begins: its cost is not known before its end."""
        plan = plan_of(request)
        return 1 if plan is not None and plan.kind == "work" else 0

    def cost_pico(self, usage: Usage) -> int | None:
        """The cost of the iteration before, as its command reported it; None when it did not."""
        return self._cost_pico

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield the calls of the plan, or the call that makes one. Raises `ModelError` when the loop has failed."""
        await checkpoint()
        plan = plan_of(request)
        if plan is None:
            trouble = _trouble(request)  # trying again does not set it right, a person can
            question = "The loop cannot go on. Set right what is in the way, then approve."
            plan = Plan("ask", "", asking(question, trouble) if trouble else (NEXT,))
        self._cost_pico = plan.cost_pico
        if plan.kind == "failed":
            raise ModelError("invalid_request", plan.say)
        if plan.say:
            yield TextDelta(plan.say)
        for index, call in enumerate(plan.calls):
            yield ToolCallStart(index, call.name, f"loop_{request.responses}_{index}")
            yield ToolCallDelta(index, msgspec.json.encode(call.input).decode())
        yield Finish("tool_use" if plan.calls else "end_turn", plan.usage or Usage(), counted=plan.usage is not None)
