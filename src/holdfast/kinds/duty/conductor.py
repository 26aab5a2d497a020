"""Decision of a duty: its next action. It is code and calls no model. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from holdfast.facts.base import Fact
from holdfast.facts.duty import (
    MANUAL,
    MESSAGE,
    SCHEDULE,
    Schedule,
    ScheduleRewound,
    TriggerDead,
    TriggerMissed,
    TriggerOffered,
    TriggerSkipped,
)
from holdfast.facts.shift import ParkReason, ShiftEnded
from holdfast.kinds.duty import alerts, polls
from holdfast.kinds.duty.actions import DutyAction, EndFiring, FiringOutcome, OpenFiring
from holdfast.kinds.duty.fold import DutyState, Offer, Running, of_duty
from holdfast.kinds.duty.schedule import CHUNK, SECOND_US, due_us, instants, next_instant
from holdfast.session.actions import Action, CancelChildren, End, Record
from holdfast.session.decide import end, waits
from holdfast.session.state import State

REWIND_US = 60 * SECOND_US
"""A smaller step back of the clock is waited for; a larger one rewinds the schedule."""

EVENTLESS = frozenset({SCHEDULE, MANUAL, MESSAGE})
"""Triggers without data of others: they are no dead letters, and taint nothing."""


def decide(state: State, now_us: int, rung: frozenset[str] = frozenset()) -> Action | DutyAction:
    """Return the duty's next action. `rung` are the triggers whose sources are known to have changed."""
    own = of_duty(state)
    action: Action | DutyAction | None
    if state.cancelled:
        action = waits.cancel_first(state) or _at_work(state, own, now_us)
        waiting = _park(state, own, now_us, "child", "its firing ends") if own.running is not None else None
        return action or waiting or end(state, "cancelled", detail="cancelled by a person")
    action = _at_work(state, own, now_us)
    if action is None and state.paused:
        detail, due_us = (waits.STOPPED, None) if state.stop_seq else (waits.PAUSED, _limit_us(state, own))
        return end(state, "parked", "person", detail, due_us)
    action = action or waits.expire_or_notify(state, now_us) or alerts.step(state, own, now_us)
    if action is not None:
        return action
    if is_held(own):
        return _park(state, own, now_us, "person", held_detail(own))
    found = _instants(state, own, now_us) or polls.step(own, now_us, rung) or _queue(own, now_us)
    if found is not None:
        return found
    if own.running is not None:
        return _park(state, own, now_us, "child", f"firing {own.running.number} is at work")
    why = "waits for its next instant" if own.duty.schedule else "waits for a trigger"
    return _park(state, own, now_us, "timer", why)


def is_held(own: DutyState) -> bool:
    """Return True while the duty waits for an approver, or for `duty resume` after one said no."""
    return own.held or own.failures >= own.duty.failures_max


def held_detail(own: DutyState) -> str:
    """Return why a held duty does not fire."""
    if own.held:
        return f"stopped by an approver after a failure; it goes on with: holdfast duty resume {own.duty.name}"
    return f"{own.failures} firings in a row failed; a person is asked: {own.item_id}"


# --- the firing under way ------------------------------------------------------------------------------


def _at_work(state: State, own: DutyState, now_us: int) -> Action | EndFiring | None:
    """End a firing whose session is over; cancel one that is overdue, that cannot go on, or that another replaces."""
    running = own.running
    if running is None:
        return None
    child = state.children.get(running.child_id)
    if running.status is not None:
        if running.status == "parked" and child is not None and not child.cancelled:
            return CancelChildren((running.child_id,))
        events = running.keys if running.trigger not in EVENTLESS else ()
        return EndFiring(running.number, *_outcome(own, running), events)
    if child is None or child.cancelled:
        return None
    return CancelChildren((running.child_id,)) if _is_overdue(own, running, now_us) or _is_replaced(own) else None


def _outcome(own: DutyState, running: Running) -> tuple[FiringOutcome, str]:
    status, detail = running.status, running.detail
    if status == "parked":
        return "stopped", f"it reached a limit ({running.reason}): {detail}"
    if status == "cancelled" and _is_overdue(own, running, running.ended_us):
        return "timeout", f"it had not ended after {own.duty.timeout_s:g} s"
    if status == "cancelled":
        return "cancelled", "replaced by the next instant" if _is_replaced(own) else detail
    return ("failed", detail) if status == "failed" else ("done", "")


def _is_overdue(own: DutyState, running: Running, now_us: int) -> bool:
    return now_us >= running.opened_us + int(own.duty.timeout_s * SECOND_US)


def _limit_us(state: State, own: DutyState) -> int | None:
    """Return when the firing under way is overdue; None without one, or if it is cancelled already."""
    running = own.running
    if running is None or state.children[running.child_id].cancelled:
        return None
    return running.opened_us + int(own.duty.timeout_s * SECOND_US)


def _is_replaced(own: DutyState) -> bool:
    return own.duty.overlap == "cancel" and bool(_waiting(own))


# --- the schedule ----------------------------------------------------------------------------------------


def _instants(state: State, own: DutyState, now_us: int) -> Record | None:
    """Handle the instants that are due: each is offered, skipped, or missed."""
    schedule = own.duty.schedule
    if schedule is None:
        return None
    if own.through_us > now_us + REWIND_US:
        return Record((ScheduleRewound(from_us=own.through_us, to_us=now_us),))
    found = instants(schedule, own.since_us, own.through_us, now_us)
    while found and due_us(schedule, state.session_id, found[-1]) > now_us:
        found = found[:-1]
    whole = len(found) < CHUNK or bool(schedule.every_s)
    if found and any(first <= found[-1] and found[0] <= last for first, last in own.covered):
        whole = len(found) <= CHUNK
        found = [each for each in found[:CHUNK] if not own.is_covered(each)]
    facts = _handled(own, schedule, found, now_us, whole=whole) if found else ()
    return Record(facts) if facts else None


def _handled(own: DutyState, schedule: Schedule, found: Sequence[int], now_us: int, *, whole: bool) -> tuple[Fact, ...]:
    """Return what happens to instants that are due. Unless they are the `whole`, later ones follow."""
    late = bisect_left(found, now_us - int(schedule.grace_s * SECOND_US))
    missed, timely = found[:late], found[late:]
    room = max(0, own.duty.queue_max - len(_waiting(own)))
    again: Sequence[int] = ()
    if schedule.misfire == "all":
        again, missed = missed[:room], missed[room:]
    elif schedule.misfire == "once" and missed and whole and not timely and room:
        again, missed = missed[-1:], missed[:-1]
    facts: list[Fact] = [_offer(each) for each in again] if schedule.misfire == "all" else []
    if missed:
        facts.append(TriggerMissed(first_us=missed[0], last_us=missed[-1], count=len(missed), policy=schedule.misfire))
    if schedule.misfire == "once":
        facts += [_offer(each) for each in again]
    return (*facts, *_timely(own, timely, room - len(again), busy=bool(again)))


def _timely(own: DutyState, timely: Sequence[int], room: int, *, busy: bool) -> list[Fact]:
    """Return what happens to instants that are reached in time."""
    overlap = own.duty.overlap
    facts: list[Fact] = []
    if overlap == "cancel":  # each instant replaces the one before
        waiting = [offer.at_us for offer in _waiting(own)] if timely else []
        facts = [TriggerSkipped(time_us=each, reason="overlap") for each in (*waiting, *timely[:-1])]
        timely, room = timely[-1:], room + len(waiting)
    for each in timely[:CHUNK]:
        if overlap == "skip" and (busy or own.running is not None or _waiting(own)):
            facts.append(TriggerSkipped(time_us=each, reason="overlap"))
        elif room <= 0:
            facts.append(TriggerSkipped(time_us=each, reason="queue"))
        else:
            facts.append(_offer(each))
            room, busy = room - 1, True
    return facts


def _waiting(own: DutyState) -> list[Offer]:
    """Return the instants that wait. Events have a bound of their own, so that a flood of them starves no schedule."""
    return [offer for offer in own.queue if offer.trigger == SCHEDULE]


def _offer(instant_us: int) -> TriggerOffered:
    return TriggerOffered(trigger=SCHEDULE, key=str(instant_us), time_us=instant_us)


# --- the queue -------------------------------------------------------------------------------------------


def _queue(own: DutyState, now_us: int) -> Record | OpenFiring | None:
    """Open a firing for what waits. Events beyond the bound, which a webhook may bring, become dead letters first."""
    events = [offer.key for offer in own.queue if offer.trigger not in EVENTLESS]
    if excess := tuple(events[own.duty.queue_max :]):
        return Record((TriggerDead(keys=excess, reason="the queue is full"),))
    offers = ready(own, now_us) if own.running is None else ()
    return OpenFiring(own.fired + 1, offers) if offers else None


def ready(own: DutyState, now_us: int) -> tuple[Offer, ...]:
    """Return the triggers of the next firing: one instant or request, or else a batch of events that is due."""
    for offer in own.queue:
        if offer.trigger in EVENTLESS:
            return (offer,)
    for offer in own.queue:
        batch = [each for each in own.queue if each.trigger == offer.trigger][: own.duty.batch]
        if len(batch) >= own.duty.batch or now_us >= _batch_us(own, offer):
            return tuple(batch)
    return ()


def _batch_us(own: DutyState, oldest: Offer) -> int:
    """Return when a batch is due although it is not full. A clock that was set back makes it wait no longer."""
    return oldest.waits_us + int(own.duty.batch_s * SECOND_US)


# --- waiting ---------------------------------------------------------------------------------------------


def _park(state: State, own: DutyState, now_us: int, reason: ParkReason, detail: str) -> End:
    times = [waits.deadline_us(state), alerts.due_us(own, now_us), *_deadlines(state, own)]
    due = min((each for each in times if each is not None), default=None)
    return End(ShiftEnded(status="parked", reason=reason, detail=detail, due_us=due))


def _deadlines(state: State, own: DutyState) -> list[int | None]:
    times = [_limit_us(state, own)]
    if is_held(own):
        return times
    times += [next_us(own, state.session_id), polls.due_us(own)]
    if own.running is None:
        times += [_batch_us(own, offer) for offer in own.queue]
    return times


def next_us(own: DutyState, duty_id: str) -> int | None:
    """Return when the next instant is due, None for a duty without a schedule."""
    schedule = own.duty.schedule
    if schedule is None:
        return None
    instant_us = next_instant(schedule, own.since_us, own.through_us, own.is_covered)
    return None if instant_us is None else due_us(schedule, duty_id, instant_us)
