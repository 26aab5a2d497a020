"""Acts of a role: prompt, hooks, commits, and the tools for its submission."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import msgspec

from holdfast.brain.recall import recall
from holdfast.brain.shift import Answer, Report, Shift
from holdfast.facts.base import Fact
from holdfast.facts.mission import Role, RoleKind, WorkSubmitted
from holdfast.facts.model import AgentToolUse
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolResult
from holdfast.hands.base import ExecResult, Hands
from holdfast.kinds.hooks import running
from holdfast.kinds.hooks.running import Ran
from holdfast.kinds.mission import plan
from holdfast.kinds.mission.acts import hooks, worker
from holdfast.kinds.mission.acts.open_roles import guarded
from holdfast.kinds.mission.acts.worker import Working
from holdfast.kinds.mission.fold.state import MissionState, mission_of
from holdfast.kinds.mission.role import submissions
from holdfast.kinds.mission.role.fold import role_state
from holdfast.kinds.mission.role.kind import role_of
from holdfast.kinds.mission.role.submissions import submitted_problems
from holdfast.kinds.mission.role.tools import HAND_IN, SUBMIT_CONTRACT, SUBMIT_PLAN, SUBMIT_VERDICT, SUBMITS, fitted
from holdfast.session.state import Call

PAGE = 1_000
"""Events of a role's own log read at a time."""

PLAN_TRIES = 3
"""Submissions of a planner after which the last one goes to the mission in spite of its problems."""


async def submit(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Record a submission with the end of its call, or refuse it with the reasons.

    Hooks and checks of the project run for work submitted as done, not for work submitted as blocked.
    """
    role = role_of(shift.state)
    if role is None or SUBMITS[role.kind] != call.name:
        await _refuse(shift, call, [f"There is nothing to hand in with {call.name} in this session."])
        return
    value, notes = fitted(call.name, value)
    wrong = await _CHECKS[call.name](shift, role, value)
    if wrong and not await _is_last(shift, call):
        await _refuse(shift, call, wrong)
        return
    ran = await hooks.at_stop(shift, call) if value.get("status") == "done" else Ran()
    if ran.cancelled or ran.refusal:
        outcome: Literal["cancelled", "error"] = "cancelled" if ran.cancelled else "error"
        result = ToolResult(call_id=call.call_id, outcome=outcome, content=f"Not handed in: {ran.refusal}")
        await shift.decision(*ran.facts, result)
        return
    submitted = WorkSubmitted(call_id=call.call_id, kind=role.kind, body=value)
    content = "\n".join(("Handed in.", *(f"- {note}" for note in notes)))
    await shift.decision(*ran.facts, submitted, ToolResult(call_id=call.call_id, outcome="ok", content=content))


async def _is_last(shift: Shift, call: Call) -> bool:
    """Return True for a planner's last try: its plan goes to the mission unchanged, which then plans by code."""
    if call.name != SUBMIT_PLAN:
        return False
    tries = [each for each in await _uses(shift, SUBMIT_PLAN) if each.call_id != call.call_id]
    return len(tries) + 1 >= PLAN_TRIES


async def _refuse(shift: Shift, call: Call, wrong: list[str]) -> None:
    lines = "\n".join(f"- {each}" for each in wrong)
    content = f"Not handed in:\n{lines}"
    await shift.decision(ToolResult(call_id=call.call_id, outcome="error", content=content))


async def _mission(shift: Shift, role: Role) -> MissionState | None:
    """Return the present state of the role's mission, or None."""
    if not role.mission_id:
        return None
    state, _ = await recall(role.mission_id, shift.doors.log, shift.doors.snapshots, shift.doors.kinds)
    return mission_of(state)


async def _work(shift: Shift, role: Role, value: dict[str, Any]) -> list[str]:
    if str(value.get("notes", "")).strip():
        return []
    return ["`notes` are empty: say what you did and how you checked it, or what is in the way."]


async def _plan(shift: Shift, role: Role, value: dict[str, Any]) -> list[str]:
    mission = await _mission(shift, role)
    if mission is None:
        return ["This planner works for no mission."]
    tasks, dropped, note = plan.read_plan(value)
    if not tasks and value.get("tasks"):
        return [note]
    return list(plan.plan_problems(tasks, mission, role.task_id, dropped))


async def _verdict(shift: Shift, role: Role, value: dict[str, Any]) -> list[str]:
    mission = await _mission(shift, role)
    asked = mission.roles.get(shift.state.session_id) if mission is not None else None
    if mission is None or asked is None:
        return ["This judge works for no mission."]
    said = submissions.read(value)
    if isinstance(said, str):
        return [said]
    files = await shift.doors.repository(role.repo).files(asked.tree, submissions.files_named(said))
    known = submissions.known_to(mission, asked.tree, asked.criteria)
    commands = {each.call_id: str(each.input.get("command", "")) for each in await _uses(shift, "bash")}
    results = [fact async for fact in _facts(shift) if isinstance(fact, ToolResult) and fact.call_id in commands]
    runs = [(commands[each.call_id], each.content) for each in results]
    return list(submissions.problems(said, msgspec.structs.replace(known, files=files, runs=runs)))


async def _uses(shift: Shift, name: str) -> list[AgentToolUse]:
    return [fact async for fact in _facts(shift) if isinstance(fact, AgentToolUse) and fact.name == name]


async def _facts(shift: Shift) -> AsyncIterator[Fact]:
    """Return all facts of this session's log."""
    after = 0
    while events := await shift.doors.log.read(shift.state.session_id, after=after, limit=PAGE):
        for event in events:
            yield event.fact
        after = events[-1].seq


async def _contract(shift: Shift, role: Role, value: dict[str, Any]) -> list[str]:
    if value.get("plain_run_would_do"):
        return [] if str(value.get("why", "")).strip() else ["Say in `why` that one session is enough."]
    if not value.get("features"):
        return ["It has no features. When the goal fits one session, set `plain_run_would_do` and say why."]
    return submitted_problems(value)


_CHECKS: dict[str, Callable[[Shift, Role, dict[str, Any]], Awaitable[list[str]]]] = {
    HAND_IN: _work,
    SUBMIT_PLAN: _plan,
    SUBMIT_VERDICT: _verdict,
    SUBMIT_CONTRACT: _contract,
}

ANSWERS: dict[str, Answer] = dict.fromkeys(_CHECKS, submit)
"""Tool → the function that handles its calls."""


PROMPTS: dict[RoleKind, str] = {
    "worker": "mission_worker",
    "planner": "planner",
    "judge": "judge",
    "initializer": "initializer",
}
"""Role → name of its system prompt."""


class RoleActs(Working):
    """Acts of a role in one shift."""

    answers = ANSWERS

    def prompt(self) -> str:
        """Return the system prompt of the role, or the agent's default."""
        role, doors = role_of(self.shift.state), self.shift.doors
        assert role is not None
        return doors.prompts.get(PROMPTS[role.kind], doors.prompt)

    async def guarded(self) -> tuple[str, ...]:
        """List the protected files of a worker's base."""
        return await guarded(self.shift)

    async def before_call(self, hands: Hands, use: AgentToolUse) -> bool:
        """Run the project's hooks; a blocking one ends the call."""
        found = await hooks.hooked(self.shift)
        return found is None or await running.before(self.shift, hands, use, found) is None

    async def after_call(self, hands: Hands, use: AgentToolUse, result: ExecResult) -> tuple[Fact, ...]:
        """Run the project's hooks, whose events are recorded beside the result."""
        found = await hooks.hooked(self.shift)
        return () if found is None else await running.after(self.shift, hands, use, result, found)

    async def before_end(self, ended: ShiftEnded) -> bool:
        """Commit a worker's folder."""
        return await worker.commit(self.shift, ended)

    async def report(self) -> Report:
        """Return the role's submission since the latest message to it, and the commit of its work."""
        own = role_state(self.shift.state)
        fact = await self.shift.body(own.submitted_seq) if own.submitted_seq else None
        submitted = fact.body if isinstance(fact, WorkSubmitted) else {}
        return Report(submitted, *own.committed)


ACTS = RoleActs
