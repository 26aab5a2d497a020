"""Acts of a firing: the tool that reports values, and the state that the duty takes over."""

from __future__ import annotations

from typing import Any

from holdfast.brain.shift import Acts, Report, Shift
from holdfast.facts.duty import ValueReported
from holdfast.facts.tool import ToolResult
from holdfast.kinds.duty.firing import REPORT, report_problem
from holdfast.session.state import Call


class FiringActs(Acts):
    """Acts of a firing in one shift."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.answers = {**self.answers, REPORT: _report}

    async def report(self) -> Report:
        """Name the snapshot of the workspace, from which the duty takes over its state."""
        return Report(tree=self.shift.state.snapshot)


ACTS = FiringActs


async def _report(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Answer the call, and append the value to the duty's log in the same transaction (S4)."""
    created = shift.state.created
    assert created is not None
    firing = created.firing
    assert firing is not None
    problem = report_problem(firing, value)
    if problem:
        await shift.decision(ToolResult(call_id=call.call_id, outcome="error", content=f"Not reported: {problem}."))
        return
    unit = value.get("unit", "") or firing.values.get(value["name"], "")
    fact = ValueReported(
        firing=firing.number,
        name=value["name"],
        value=float(value["value"]),
        unit=unit,
        note=value.get("note", ""),
    )
    post = shift.post_to(
        firing.duty_id,
        f"value:{shift.state.session_id}:{call.call_id}",
        fact,
        actor=f"session:{shift.state.session_id}",
    )
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok", content="Reported."), posts=[post])
