"""What becomes of a session whose workspace is nowhere any more: a person is asked, nothing begins anew (S11)."""

from __future__ import annotations

from holdfast.facts.budget import BreakerClosed
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, End, Record
from holdfast.session.decide.people import standing, wait
from holdfast.session.state import State

WORKSPACE = "workspace"
"""How the breaker is named."""


def step(state: State, now_us: int) -> Action | None:
    """What comes before any call while the workspace is gone; None when it is not."""
    if state.breaker != WORKSPACE:
        return None
    ask = next((each for each in state.asks.values() if each.kind == "escalation"), None)
    if ask is None or state.message_seq > max(ask.seq, ask.decided_seq):
        over = (
            standing(state, "escalation", "a person wrote instead") if ask is not None and ask.verdict is None else ()
        )
        return Record((BreakerClosed(breaker=WORKSPACE, detail="it is looked for again"), *over))
    if ask.verdict is None:
        return wait(state, now_us, "the workspace is gone; a person is asked")
    if ask.verdict == "approve":
        return Record((BreakerClosed(breaker=WORKSPACE, detail=ask.note or "a person said to look again"),))
    return End(
        ShiftEnded(status="parked", reason="person", detail="the workspace is gone; send a message to look again")
    )
