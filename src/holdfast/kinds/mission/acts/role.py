"""What a brain does for a role: its prompt, its hooks, its commits, and the tools that it hands in with."""

from __future__ import annotations

from holdfast.brain.shift import Report
from holdfast.facts.base import Fact
from holdfast.facts.mission import RoleKind, WorkSubmitted
from holdfast.facts.model import AgentToolUse
from holdfast.facts.shift import ShiftEnded
from holdfast.hands.base import ExecResult, Hands
from holdfast.kinds.mission.acts import committing, hooks, submit
from holdfast.kinds.mission.acts.hooked import Working
from holdfast.kinds.mission.acts.roles import guarded
from holdfast.kinds.mission.role.fold import role_state
from holdfast.kinds.mission.role.kind import role_of

PROMPTS: dict[RoleKind, str] = {
    "worker": "mission_worker",
    "planner": "planner",
    "judge": "judge",
    "initializer": "initializer",
}
"""Role → the name of its system prompt."""


class RoleActs(Working):
    """The acts of one role in one shift."""

    answers = submit.ANSWERS

    def prompt(self) -> str:
        """The prompt of the role, the agent's where there is none."""
        role, doors = role_of(self.shift.state), self.shift.doors
        assert role is not None
        return doors.prompts.get(PROMPTS[role.kind], doors.prompt)

    async def guarded(self) -> tuple[str, ...]:
        """The protected files that a worker began with."""
        return await guarded(self.shift)

    async def before_call(self, hands: Hands, use: AgentToolUse) -> bool:
        """Run the project's hooks: one that blocks ends the call."""
        return await hooks.before(self.shift, hands, use) is None

    async def after_call(self, hands: Hands, use: AgentToolUse, result: ExecResult) -> tuple[Fact, ...]:
        """Run the project's hooks: what they say stands beside the result."""
        return await hooks.after(self.shift, hands, use, result)

    async def before_end(self, ended: ShiftEnded) -> bool:
        """Commit what a worker leaves."""
        return await committing.commit(self.shift, ended)

    async def report(self) -> Report:
        """What it handed in since the latest message to it, and the commit of its work."""
        own = role_state(self.shift.state)
        fact = await self.shift.body(own.submitted_seq) if own.submitted_seq else None
        submitted = fact.body if isinstance(fact, WorkSubmitted) else {}
        return Report(submitted, *own.committed)


ACTS = RoleActs
