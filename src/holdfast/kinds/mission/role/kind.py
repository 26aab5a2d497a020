"""Roles of a mission: planner, worker, judge, and initializer. Their sessions end only with their submission.

No text and no token in a response ends a role. A role that stops without a submission gets a message; after a few
messages it has failed.
"""

from __future__ import annotations

import msgspec

from holdfast.facts.mission import Role
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ShiftEnded, ShiftStatus
from holdfast.facts.tool import NOT_HANDED_IN, HookRan, ToolResult
from holdfast.kinds.mission.role.fold import FOLD, RoleState, role_state
from holdfast.kinds.mission.role.tools import SUBMITS, TOOLS
from holdfast.session.actions import Action, End, EndCalls, Escalate, Record
from holdfast.session.decide.waits import close_all
from holdfast.session.state import State
from holdfast.session.tenant import Kind

SILENT_MAX = 2
"""Messages to a role that stops without a submission; the next stop is a failure."""

REFUSED_MAX = 5
"""Refused submissions since the latest message to a role after which the role has failed."""

HELPLESS = frozenset({"tool_failures", "no_progress"})
"""Breakers that mean that a session makes no progress."""


def role_of(state: State) -> Role | None:
    """Return the role of a session within a mission, or None."""
    return state.created.role if state.created is not None else None


class RoleKind(Kind[State]):
    """Kind of sessions that work for a mission."""

    name = "role"
    state_type = RoleState
    sources = ("holdfast.kinds.mission.role.fold", "holdfast.kinds.mission.role.tools")
    tools = TOOLS
    fold = FOLD

    def began(self, created: SessionCreated) -> msgspec.Struct:
        """Return the state of a role without a submission."""
        return RoleState()

    def after(self, state: State) -> Action | None:
        """Skip calls after the submission."""
        opened = state.open_calls()
        if not role_state(state).submitted_seq or not opened:
            return None
        why = "Not run: the work was handed in before it."
        return EndCalls(tuple(ToolResult(call_id=call.call_id, outcome="skipped", content=why) for call in opened))

    def instead(self, state: State, action: Action | None) -> Action | None:
        """End a role that has submitted or failed; its mission opens a fresh one after a failure.

        A role fails when its submissions are refused too often or it makes no progress. In the latter case, another
        session would ask the user.
        """
        own = role_state(state)
        if own.submitted_seq:
            return _end(state, "done")
        if own.refused >= REFUSED_MAX:
            return _end(state, "failed", f"its submissions were refused {own.refused} times")
        if isinstance(action, Escalate) and action.breaker in HELPLESS:
            return _end(state, "failed", f"it made no progress: {action.detail}")
        return action

    def stopped(self, state: State) -> Action | None:
        """Send a message to a role that stopped without a submission; after a few messages, end it."""
        role, own = role_of(state), role_state(state)
        assert role is not None
        tool = SUBMITS[role.kind]
        if own.silent < SILENT_MAX:
            said = (
                f"[You stopped, and nothing is handed in: text that you write here is not read. Go on with the work, "
                f"or call `{tool}`. If the work cannot be done, say so in that call.]"
            )
            return Record((HookRan(event=NOT_HANDED_IN, command="", blocked=True, content=said),))
        refused = f"; its earlier submissions were refused {own.refused} times" if own.refused else ""
        return _end(state, "failed", f"it stopped {own.silent + 1} times in a row without handing in{refused}")


KIND = RoleKind()


def _end(state: State, status: ShiftStatus, detail: str = "") -> End:
    return End(ShiftEnded(status=status, detail=detail), close_all(state, f"the session is {status}"))
