"""What a session does about the sessions that it opened (S4)."""

from __future__ import annotations

from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, CancelChildren, End, RunHarness, WaitUntil
from holdfast.session.state import Call, Child, State

WAIT_HERE_US = 5_000_000
"""A shorter wait is spent in the shift; a longer one parks the session, which costs nothing."""


def cancel_first(state: State) -> CancelChildren | None:
    """Children that have to be cancelled before their parent can be."""
    working = tuple(child.child_id for child in state.live_children() if not child.cancelled)
    return CancelChildren(working) if working else None


def awaited(state: State, call: Call) -> list[Child]:
    """The children that a call still waits for."""
    found = [state.children[name] for name in call.waits_for if name in state.children]
    return [child for child in found if child.status is None]


def wait_for(state: State, call: Call, now_us: int) -> Action:
    """Go on with a call that waits for children: report, or wait without a process."""
    working = awaited(state, call)
    over = call.until_us is not None and is_over(state, call.at_us, call.until_us, now_us)
    if not working or over or state.message_seq > call.seq:
        return RunHarness(call.call_id)
    names = ", ".join(child.name or child.child_id for child in working[:3])
    detail = f"waits for {len(working)} of its children ({names})"
    due_us = None if call.until_us is None else due(state, call.at_us, call.until_us, now_us)
    return End(ShiftEnded(status="parked", reason="child", detail=detail, due_us=due_us))


def sleep(state: State, call: Call, now_us: int) -> Action:
    """Go on with a call that sleeps."""
    assert call.until_us is not None
    woken = any(item.seq > call.seq for item in state.pending)
    if woken or is_over(state, call.at_us, call.until_us, now_us):
        return RunHarness(call.call_id)
    due_us = due(state, call.at_us, call.until_us, now_us)
    if due_us - now_us <= WAIT_HERE_US:
        return WaitUntil(due_us)
    return End(ShiftEnded(status="parked", reason="timer", detail="asleep", due_us=due_us))


def is_over(state: State, began_us: int, until_us: int, now_us: int) -> bool:
    """Whether a wait is over, also when the clock was set back while it lasted.

    Behind the wait's beginning nobody knows how much of it has passed: it is waited out once more from there,
    never longer.
    """
    if now_us >= until_us:
        return True
    waited_again = began_us > state.parked_us > 0 and state.parked_due_us <= now_us
    return now_us < began_us and waited_again


def due(state: State, began_us: int, until_us: int, now_us: int) -> int:
    """When a wait is to be looked at again."""
    if now_us >= began_us:
        return until_us
    if began_us > state.parked_us > 0 and state.parked_due_us > now_us:
        return state.parked_due_us
    return now_us + (until_us - began_us)
