"""Calls that the harness itself answers: each in one transaction with its effect on logs (S4)."""

from __future__ import annotations

from typing import Any

from holdfast.brain.acts import child as child_act
from holdfast.brain.acts import jobs as jobs_act
from holdfast.brain.acts.search import search
from holdfast.brain.shift import Answer, Shift
from holdfast.facts.context import PhaseEnded
from holdfast.facts.model import AgentToolUse
from holdfast.facts.tool import ToolResult
from holdfast.session.context.inputs import arrived
from holdfast.session.state import Call


async def run(shift: Shift, call_id: str) -> None:
    """Answer the call."""
    call = shift.state.call(call_id)
    use = await shift.body(call.seq)
    assert isinstance(use, AgentToolUse)
    answer = shift.acts.answers.get(call.name) or _ANSWERS[call.name]
    await answer(shift, call, use.input)


async def _end_phase(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    ended = PhaseEnded(call_id=call.call_id, name=str(value["name"]), next=str(value.get("next", "")))
    await shift.decision(ended, ToolResult(call_id=call.call_id, outcome="ok", content="The phase is over."))


async def _sleep(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    early = arrived(shift.state, call)
    slept_s = max(0.0, (shift.doors.clock.now_us() - call.at_us) / 1e6)
    content = f"Woken after {slept_s:.0f} s: something came in." if early else "Slept."
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok", content=content))


async def _search_log(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    found = await search(
        shift.doors.log,
        shift.state.session_id,
        str(value["query"]),
        before=int(value.get("before") or call.seq),
        limit=int(value.get("limit", 10)),
    )
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok", content=found))


_ANSWERS: dict[str, Answer] = {
    "end_phase": _end_phase,
    "sleep": _sleep,
    "search_log": _search_log,
    "spawn": child_act.spawn,
    "message_child": child_act.message,
    "wait_for_children": child_act.report,
    "cancel_child": child_act.cancel,
    "job_wait": jobs_act.report,
    "job_log": jobs_act.log,
    "service_logs": jobs_act.log,
    "job_stop": jobs_act.stop_nothing,
    "service_stop": jobs_act.stop_nothing,
}
