"""What a session does about the sessions that it opened (S4)."""

from __future__ import annotations

from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, CancelChildren, End, RunHarness, WaitUntil
from holdfast.session.context.inputs import arrived, left_over
from holdfast.session.state import Call, Child, State

WAIT_HERE_US = 5_000_000
"""A shorter wait is spent in the shift; a longer one parks the session, which costs nothing."""


def cancel_first(state: State) -> CancelChildren | None:
    """Children that have to be cancelled before their parent can be: those at work, and those parked for good."""
    unfinished = [child for child in state.children.values() if child.status in (None, "parked")]
    working = tuple(child.child_id for child in unfinished if not child.cancelled)
    return CancelChildren(working) if working else None


def awaited(state: State, call: Call) -> list[Child]:
    """The children that a call still waits for."""
    found = [state.children[name] for name in call.waits_for if name in state.children]
    return [child for child in found if child.status is None]


def wait_for(state: State, call: Call, now_us: int) -> Action:
    """Go on with a call that waits for children: report, or wait without a process."""
    working = awaited(state, call)
    over = call.until_us is not None and is_over(state, call.seq, call.until_us, now_us, call.at_us)
    if not working or over or state.message_seq > call.seq or left_over(state, call):
        return RunHarness(call.call_id)
    names = ", ".join(child.name or child.child_id for child in working[:3])
    detail = f"waits for {len(working)} of its children ({names})"
    due_us = None if call.until_us is None else due(state, call.seq, call.until_us, call.at_us)
    return End(ShiftEnded(status="parked", reason="child", detail=detail, due_us=due_us))


def sleep(state: State, call: Call, now_us: int) -> Action:
    """Go on with a call that sleeps."""
    assert call.until_us is not None
    woken = arrived(state, call)
    if woken or is_over(state, call.seq, call.until_us, now_us, call.at_us):
        return RunHarness(call.call_id)
    due_us = due(state, call.seq, call.until_us, call.at_us)
    if due_us - now_us <= WAIT_HERE_US:
        return WaitUntil(due_us)
    return End(ShiftEnded(status="parked", reason="timer", detail="asleep", due_us=due_us))


def is_over(state: State, since_seq: int, until_us: int, now_us: int, began_us: int | None = None) -> bool:
    """Whether a wait that began with the event at `since_seq` is over, also when the clock was set back meanwhile."""
    return now_us >= due(state, since_seq, until_us, began_us)


def due(state: State, since_seq: int, until_us: int, began_us: int | None = None) -> int:
    """When that wait is over: earlier by as much as the clock has been set back since it began.

    With `began_us`, when it began, it ends at the latest its whole length after an event that shows the clock set back:
    one that was set forward unseen before the wait may have put its end far into the future.
    """
    jumps = [jump for jump in state.set_back if jump.seq > since_seq]
    due_us = until_us - sum(jump.back_us for jump in jumps)
    if began_us is None:
        return due_us
    return min([due_us, *(jump.at_us + until_us - began_us for jump in jumps)])
