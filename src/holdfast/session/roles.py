"""When a session that works for a mission is finished: when it has handed in, and not before. Pure.

Nothing that it says in passing ends it: no words, no token. A role that stops without handing in is told so, and after
some times it has failed.
"""

from __future__ import annotations

from holdfast.facts.mission import HookRan, Role, RoleKind
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, End, Record
from holdfast.session.fold_roles import HAND_IN_EVENT
from holdfast.session.people import close_all
from holdfast.session.state import State
from holdfast.session.tools_mission import SUBMITS

SILENT_MAX = 2
"""So often a role that stops without handing in is told to; the next time it has failed."""

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
    """A role that has handed in is finished: nothing more is asked of its model."""
    if role_of(state) is None or not state.submitted_seq:
        return None
    return End(ShiftEnded(status="done"), close_all(state, "the work was handed in"))


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
    why = f"it stopped {state.silent + 1} times without calling `{tool}`"
    return End(ShiftEnded(status="failed", detail=why), close_all(state, "the session failed"))
