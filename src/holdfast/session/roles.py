"""When a session that works for a mission is finished: when it has handed in, and not before. Pure.

Nothing that it says in passing ends it: no words, no token. A role that stops without handing in is told so, and after
some times it has failed.
"""

from __future__ import annotations

from holdfast.facts.mission import HookRan, Role, RoleKind
from holdfast.facts.shift import ShiftEnded, ShiftStatus
from holdfast.facts.tool import ToolResult
from holdfast.session.actions import Action, End, EndCalls, Escalate, Record
from holdfast.session.fold_roles import HAND_IN_EVENT
from holdfast.session.people import close_all
from holdfast.session.state import Call, State
from holdfast.session.tools_mission import SUBMITS

SILENT_MAX = 2
"""So often a role that stops without handing in is told to; the next time it has failed."""

REFUSED_MAX = 5
"""So often what a role hands in may be refused since it was last told something; then it has failed."""

HELPLESS = frozenset({"tool_failures", "no_progress"})
"""Breakers that say that a session gets nowhere."""

PROMPTS: dict[RoleKind, str] = {
    "worker": "mission_worker",
    "planner": "planner",
    "judge": "judge",
    "initializer": "initializer",
}
"""Role → the name of its system prompt."""


def role_of(state: State) -> Role | None:
    """What the session does within a mission, None when it does nothing there."""
    return state.created.role if state.created is not None else None


def step(state: State) -> End | None:
    """The end of a role: it has handed in, so that nothing more is asked of its model; or it cannot.

    A role that was told often enough why what it hands in does not count has failed: another one is tried.
    """
    if role_of(state) is None:
        return None
    if state.submitted_seq:
        return _end(state, "done")
    if state.refused >= REFUSED_MAX:
        return _end(state, "failed", f"what it handed in was refused {state.refused} times")
    return None


def after(state: State, opened: list[Call]) -> EndCalls | None:
    """Calls that stand behind the one that handed in are not run."""
    if role_of(state) is None or not state.submitted_seq or not opened:
        return None
    why = "Not run: the work was handed in before it."
    return EndCalls(tuple(ToolResult(call_id=call.call_id, outcome="skipped", content=why) for call in opened))


def instead(state: State, action: Action | None) -> Action | None:
    """A role that makes no progress has failed: its mission tries a fresh one, where a session asks a person."""
    if role_of(state) is None or not isinstance(action, Escalate) or action.breaker not in HELPLESS:
        return action
    return _end(state, "failed", f"it made no progress: {action.detail}")


def _end(state: State, status: ShiftStatus, detail: str = "") -> End:
    return End(ShiftEnded(status=status, detail=detail), close_all(state, f"the session is {status}"))


def stopped(state: State) -> Action | None:
    """What to do about a role that stopped without handing in; None for a session that is no role."""
    role = role_of(state)
    if role is None:
        return None
    tool = SUBMITS[role.kind]
    if state.silent < SILENT_MAX:
        said = (
            f"[You stopped, and nothing is handed in: what you wrote reaches nobody. Go on with the work, or call "
            f"`{tool}`. When it cannot be done, say so there.]"
        )
        return Record((HookRan(event=HAND_IN_EVENT, command="", blocked=True, content=said),))
    refused = f"; what it handed in before was refused {state.refused} times" if state.refused else ""
    return _end(state, "failed", f"it stopped {state.silent + 1} times in a row without handing in{refused}")
