"""Sessions that work for a run over a list: they end by themselves, and never ask a user whether to go on."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from holdfast.brain.shift import Report, Shift
from holdfast.facts.items import ItemWork
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import NOT_HANDED_IN, HookRan, ToolResult
from holdfast.hands.base import ExecResult
from holdfast.kinds.items import schema as schemas
from holdfast.kinds.run.acts import RunActs
from holdfast.kinds.run.kind import RunKind, run_state
from holdfast.session.actions import Action, Escalate
from holdfast.session.decide import end
from holdfast.session.state import Call, State
from holdfast.session.tools.output import OUTPUT, SUBMIT_OUTPUT, has_output

LATEST = 100
"""Latest events among which the cause of a failed try is looked for."""

REASON_CHARACTERS = 1_000


class ItemKind(RunKind):
    """Kind of the sessions of a run over a list: a plain session with checks, whose output goes to the run."""

    name = "item"


KIND = ItemKind()


def work_of(state: State) -> ItemWork:
    """Return the work of a session for a run over a list."""
    assert state.created is not None
    assert state.created.item is not None
    return state.created.item


class ItemActs(RunActs):
    """Acts of such a session in one shift. Whatever would need a user ends it; the run decides about another try."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.answers = {**self.answers, SUBMIT_OUTPUT: _submit}

    async def next(self) -> Action | None:
        """Return the next action; the session fails instead of asking a user how to go on."""
        action = await super().next()
        if isinstance(action, Escalate):
            return end(self.shift.state, "failed", detail=f"{action.detail}{await self._last_failure()}")
        return action

    async def _last_failure(self) -> str:
        """Return what the last invalid output or failed check said, for the reason of the failed try."""
        state = self.shift.state
        for event in reversed(await self.shift.doors.log.read(state.session_id, after=max(0, state.seq - LATEST))):
            fact = event.fact
            match fact:
                case ToolResult(outcome="error", content=content):
                    return f": {content[-REASON_CHARACTERS:]}"
                case HookRan(blocked=True, content=content) if fact.event != NOT_HANDED_IN:
                    return f": {content[-REASON_CHARACTERS:]}"
        return ""

    def given_up(self, park: ShiftEnded) -> ShiftEnded:
        """Fail: a wake that fails repeatedly is a failed try."""
        return ShiftEnded(status="failed", detail=park.detail)

    async def report(self) -> Report:
        """Return the valid output."""
        own = run_state(self.shift.state)
        return Report(submitted={OUTPUT: own.output} if own.submitted else {})

    async def round(self, commands: tuple[str, ...], timeout_s: float) -> list[ExecResult]:
        """Run the checks with the result on their standard input: JSON, or the text of the last message."""
        state = self.shift.state
        assert state.created is not None
        if has_output(state.created.agent):
            result = msgspec.json.encode(run_state(state).output).decode()
        else:
            result = await self.shift.latest_words()
        piped = (f"printf %s {shlex.quote(result)} | (\n{command}\n)" for command in commands)
        return await super().round(tuple(piped), timeout_s)


ACTS = ItemActs


async def _submit(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Accept an output that meets the complete schema; tell the model what is wrong with another one."""
    schema = work_of(shift.state).schema
    problem = schemas.problem(value.get(OUTPUT), schema) if schema else ""
    said = f"The output is not valid: {problem}" if problem else "Your output is recorded."
    await shift.decision(ToolResult(call_id=call.call_id, outcome="error" if problem else "ok", content=said))
