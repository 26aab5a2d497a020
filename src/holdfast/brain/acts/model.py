"""Asking the model for the agent's next turn."""

from __future__ import annotations

import anyio

from holdfast.brain.acts import attempt, snapshot
from holdfast.brain.acts.attempt import Attempt
from holdfast.brain.acts.chain import model_or_rest
from holdfast.brain.acts.hands import begin_provisioning, provision
from holdfast.brain.shift import Shift
from holdfast.model.base import ModelRequest, StreamPart, ToolCallStart, ToolSpec
from holdfast.session.actions import AskModel, End
from holdfast.session.context.window import build
from holdfast.session.decide.lifecycle import window_tokens
from holdfast.session.tools import offered, schema_of
from holdfast.session.tools.policy import evaluate


async def ask_model(shift: Shift, action: AskModel) -> End | None:
    """One attempt at the next response. An `End` says that money does not allow it."""
    state = shift.state
    assert state.created is not None
    agent = state.created.agent
    model = await model_or_rest(shift, action.model)
    if model is None:
        return None
    context = build(state, await shift.bodies(), shift.acts.prompt())
    tools = offered(agent, state.tenant.kind.tools)
    request = ModelRequest(
        purpose="turn",
        system=context.system,
        messages=context.messages,
        tools=tuple(ToolSpec(tool.name, tool.description, schema_of(tool)) for tool in tools),
        max_output_tokens=state.limits.max_output_tokens,
        responses=state.responses,
        attempt=action.attempt,
        input_tokens_estimate=window_tokens(state),
        thinking=agent.thinking,
    )
    started = await attempt.begin(
        shift,
        model,
        request,
        name=action.model,
        inputs_through=action.inputs_through,
        digest=context.digest,
        on_part=lambda part: _on_part(shift, part),
    )
    if isinstance(started, End):
        return started
    snapshot.begin(shift)
    if shift.doors.provisioning == "eager":
        await _provision_first(started)
    await attempt.run(started, lambda response: response.facts(started.start_seq), keep_part=True)
    return None


def _on_part(shift: Shift, part: StreamPart) -> None:
    shift.doors.observer.on_delta(part)
    if isinstance(part, ToolCallStart) and _may_run_in_hands(shift, part.name):
        begin_provisioning(shift)


def _may_run_in_hands(shift: Shift, name: str) -> bool:
    created = shift.state.created
    tool = shift.state.tool(name)
    if created is None or tool is None or tool.where:
        return False
    return evaluate(created.agent.rules, name).decision == "allow"


async def _provision_first(started: Attempt) -> None:
    """Have hands before the wire is touched; without them the request is cancelled, at no cost."""
    try:
        await provision(started.shift)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await started.shift.fact(started.end("cancelled"))
        raise
