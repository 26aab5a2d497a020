"""Roles: planner, worker, judge, and initializer. An agent that is finished when it has handed in, and not before.

Nothing that it says in passing ends it: no text, no token. A role that stops without handing in is sent a message, and
after some of them it has failed.
"""

from __future__ import annotations

import msgspec

from holdfast.facts.hook import NOT_HANDED_IN, HookRan
from holdfast.facts.mission import Role
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ShiftEnded, ShiftStatus
from holdfast.facts.tool import ToolResult
from holdfast.kinds.mission.role.fold import FOLD, RoleState, role_state
from holdfast.kinds.mission.role.tools import SUBMITS, TOOLS
from holdfast.session.actions import Action, End, EndCalls, Escalate, Record
from holdfast.session.decide.people import close_all
from holdfast.session.state import State
from holdfast.session.tenant import Kind

SILENT_MAX = 2
"""So often a role that stops without handing in is told to; the next time it has failed."""

REFUSED_MAX = 5
"""So often what a role hands in may be refused since it was last told something; then it has failed."""

HELPLESS = frozenset({"tool_failures", "no_progress"})
"""Breakers that say that a session gets nowhere."""


def role_of(state: State) -> Role | None:
    """What the session does within a mission, None when it does nothing there."""
    return state.created.role if state.created is not None else None


class RoleKind(Kind[State]):
    """The kind of sessions that work for a mission."""

    name = "role"
    state_type = RoleState
    sources = ("holdfast.kinds.mission.role.fold", "holdfast.kinds.mission.role.tools")
    tools = TOOLS
    fold = FOLD

    def began(self, created: SessionCreated) -> msgspec.Struct:
        """A role has handed in nothing yet."""
        return RoleState()

    def after(self, state: State) -> Action | None:
        """Calls that stand behind the one that handed in are not run."""
        opened = state.open_calls()
        if not role_state(state).submitted_seq or not opened:
            return None
        why = "Not run: the work was handed in before it."
        return EndCalls(tuple(ToolResult(call_id=call.call_id, outcome="skipped", content=why) for call in opened))

    def instead(self, state: State, action: Action | None) -> Action | None:
        """The end of a role that has handed in, or that cannot: its mission tries a fresh one.

        One whose submissions are refused again and again has failed, and so has one that makes no progress, where
        another session would ask a person.
        """
        own = role_state(state)
        if own.submitted_seq:
            return _end(state, "done")
        if own.refused >= REFUSED_MAX:
            return _end(state, "failed", f"what it handed in was refused {own.refused} times")
        if isinstance(action, Escalate) and action.breaker in HELPLESS:
            return _end(state, "failed", f"it made no progress: {action.detail}")
        return action

    def stopped(self, state: State) -> Action | None:
        """A message to a role that stopped without handing in, a few times; then its end."""
        role, own = role_of(state), role_state(state)
        assert role is not None
        tool = SUBMITS[role.kind]
        if own.silent < SILENT_MAX:
            said = (
                f"[You stopped, and nothing is handed in: what you wrote reaches nobody. Go on with the work, or call "
                f"`{tool}`. When it cannot be done, say so there.]"
            )
            return Record((HookRan(event=NOT_HANDED_IN, command="", blocked=True, content=said),))
        refused = f"; what it handed in before was refused {own.refused} times" if own.refused else ""
        return _end(state, "failed", f"it stopped {own.silent + 1} times in a row without handing in{refused}")


KIND = RoleKind()


def _end(state: State, status: ShiftStatus, detail: str = "") -> End:
    return End(ShiftEnded(status=status, detail=detail), close_all(state, f"the session is {status}"))
