"""State of a duty, folded from its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.duty import (
    MESSAGE,
    SCHEDULE,
    AlertAcknowledged,
    AlertCleared,
    AlertRaised,
    Duty,
    DutyChanged,
    FiringEnded,
    ScheduleRewound,
    SourcePolled,
    TriggerDead,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    TriggerReplayed,
    TriggerSkipped,
    ValueReported,
)
from holdfast.facts.people import ApprovalDecided, UserMessage, UserResume
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildFinished
from holdfast.session.state import Apply, State

COVERED_MAX = 256
"""Most ranges of handled instants that are remembered for a clock that is set back."""

DEAD_MAX = 1_000
"""Most dead events that can be replayed; older ones are only in the log."""

ENDED_MAX, SERIES_MAX, POINTS_MAX = 100, 100, 500
"""Most outcomes, series of values, and points of a series in the state; the log has all of them."""


class Offer(msgspec.Struct, array_like=True):
    """A trigger that waits; the event at `seq` has its data."""

    trigger: str
    key: str
    at_us: int
    seq: int
    waits_us: int


class Running(msgspec.Struct):
    """The firing under way. `status` and the fields after it are of the end of its session, None while it works."""

    number: int
    child_id: str
    trigger: str
    keys: tuple[str, ...]
    opened_us: int
    offers: list[Offer] = []
    status: Literal["done", "failed", "cancelled", "parked"] | None = None
    reason: str = ""
    detail: str = ""
    ended_us: int = 0
    ended_seq: int = 0
    values: int = 0


class Outcome(msgspec.Struct, array_like=True):
    """The end of a firing."""

    firing: int
    at_us: int
    outcome: str
    cost_pico: int | None


class Point(msgspec.Struct, array_like=True):
    """A reported value."""

    at_us: int
    value: float
    firing: int


class Series(msgspec.Struct):
    """The latest values of one name."""

    unit: str = ""
    points: list[Point] = []


class SourceState(msgspec.Struct):
    """State of a trigger that is polled. `failures` counts failed polls in a row, of which `failure` is the last."""

    cursor: str = ""
    polled_us: int = 0
    more: bool = False
    failure: str = ""
    failures: int = 0


class AlertState(msgspec.Struct):
    """State of an alert. `item_id` is its inbox item; `cleared_us` its last clearing, None if it never was."""

    raised: bool = False
    raised_us: int = 0
    cleared_us: int | None = None
    acknowledged: bool = False
    item_id: str = ""
    detail: str = ""


class DutyState(msgspec.Struct):
    """State of a duty.

    `since_us` is when its interval began. Every instant up to `through_us` is handled; `covered` are the ranges of
    instants that were handled in their time, so that none fires again after the clock was set back, and `run` is set
    while the latest range grows. `failures` counts failed firings in a row, about which `item_id` asks; `held` means
    that an approver said no to going on. `version` counts the definitions.
    """

    duty: Duty
    goal: str
    since_us: int
    through_us: int
    version: int = 1
    covered: list[tuple[int, int]] = []
    run: bool = False
    queue: list[Offer] = []
    dead: dict[str, Offer] = {}
    running: Running | None = None
    fired: int = 0
    failures: int = 0
    item_id: str = ""
    held: bool = False
    ended: list[Outcome] = []
    series: dict[str, Series] = {}
    missed: int = 0
    skipped: int = 0
    spent_pico: int = 0
    sources: dict[str, SourceState] = {}
    alerts: dict[str, AlertState] = {}

    def is_covered(self, instant_us: int) -> bool:
        """Return True for an instant that was handled in its time, before the clock was set back."""
        return any(first <= instant_us <= last for first, last in self.covered)


def of_duty(state: State) -> DutyState:
    """Return the state of a duty."""
    own = state.tenant.own
    assert isinstance(own, DutyState)
    return own


def duty_of(state: State) -> DutyState | None:
    """Return the state of a duty, None for another session."""
    return state.tenant.own if isinstance(state.tenant.own, DutyState) else None


def _handled(own: DutyState, instant_us: int) -> None:
    """Note an instant that was handled in its time."""
    own.through_us = instant_us
    if own.run and own.covered:
        own.covered[-1] = (own.covered[-1][0], instant_us)
        return
    own.run = True
    own.covered = [*own.covered, (instant_us, instant_us)][-COVERED_MAX:]


def _defined(state: State, fact: SessionCreated | DutyChanged, event: Event) -> None:
    """Begin the schedule when the duty was added, and again with another schedule."""
    own = of_duty(state)
    if isinstance(fact, SessionCreated):
        own.since_us = own.through_us = event.at_us
        return
    state.stirred()
    if fact.duty.schedule != own.duty.schedule:
        own.since_us = own.through_us = event.at_us
        own.run = False
        own.queue = [offer for offer in own.queue if offer.trigger != SCHEDULE]
    own.duty, own.goal, own.version = fact.duty, fact.goal or own.goal, own.version + 1


def _offered(state: State, fact: TriggerOffered | UserMessage, event: Event) -> None:
    own = of_duty(state)
    if isinstance(fact, UserMessage):
        own.queue.append(Offer(MESSAGE, f"{MESSAGE}:{event.seq}", event.at_us, event.seq, event.at_us))
        return
    state.stirred()
    own.queue.append(Offer(fact.trigger, fact.key, fact.time_us, event.seq, event.at_us))
    if fact.trigger == SCHEDULE:
        _handled(own, fact.time_us)


def _skipped(state: State, fact: TriggerSkipped, event: Event) -> None:
    own = of_duty(state)
    own.skipped += 1
    waiting = len(own.queue)
    own.queue = [offer for offer in own.queue if (offer.trigger, offer.at_us) != (SCHEDULE, fact.time_us)]
    if len(own.queue) == waiting:
        _handled(own, fact.time_us)


def _passed(state: State, fact: TriggerMissed | ScheduleRewound, event: Event) -> None:
    """Go on after instants that were missed, or from where the clock was set back to."""
    own = of_duty(state)
    own.run = False
    if isinstance(fact, TriggerMissed):
        own.missed += fact.count
        own.through_us = fact.last_us
    else:
        own.through_us = fact.to_us


def _fired(state: State, fact: TriggerFired, event: Event) -> None:
    own = of_duty(state)
    taken = [offer for offer in own.queue if offer.key in fact.keys]
    own.queue = [offer for offer in own.queue if offer.key not in fact.keys]
    own.fired = fact.firing
    own.running = Running(fact.firing, fact.child_id, fact.trigger, fact.keys, event.at_us, taken)


def _child(state: State, fact: ChildFinished, event: Event) -> None:
    """Note the end of the session of the firing under way."""
    running = of_duty(state).running
    if running is not None and running.child_id == fact.child_id:
        running.status, running.reason, running.detail = fact.status, fact.reason or "", fact.detail
        running.ended_us, running.ended_seq = event.at_us, event.seq


def _ended(state: State, fact: FiringEnded, event: Event) -> None:
    own = of_duty(state)
    own.running = None
    state.children.pop(fact.child_id, None)
    state.pending.clear()  # a duty asks no model, and lives for years
    if fact.outcome == "done":
        own.failures, own.item_id = 0, ""
    elif fact.outcome != "cancelled":
        own.failures += 1
        own.item_id = fact.item_id or own.item_id
    own.spent_pico += fact.cost_pico or 0
    own.ended = [*own.ended, Outcome(fact.firing, event.at_us, fact.outcome, fact.cost_pico)][-ENDED_MAX:]


def _dead(state: State, fact: TriggerDead, event: Event) -> None:
    own = of_duty(state)
    handled = own.running.offers if own.running is not None else []
    own.dead |= {offer.key: offer for offer in (*own.queue, *handled) if offer.key in fact.keys}
    own.queue = [offer for offer in own.queue if offer.key not in fact.keys]
    for key in list(own.dead)[:-DEAD_MAX]:
        del own.dead[key]


def _replayed(state: State, fact: TriggerReplayed, event: Event) -> None:
    own = of_duty(state)
    state.stirred()
    for key in fact.keys:
        if offer := own.dead.pop(key, None):
            own.queue.append(msgspec.structs.replace(offer, waits_us=event.at_us))


def _value(state: State, fact: ValueReported, event: Event) -> None:
    own = of_duty(state)
    state.stirred()
    if own.running is not None and own.running.number == fact.firing:
        own.running.values += 1
    series = own.series.setdefault(fact.name, Series())
    series.unit = fact.unit or series.unit
    series.points = [*series.points, Point(event.at_us, fact.value, fact.firing)][-POINTS_MAX:]
    for name in list(own.series)[:-SERIES_MAX]:
        del own.series[name]


def _polled(state: State, fact: SourcePolled, event: Event) -> None:
    source = of_duty(state).sources.setdefault(fact.trigger, SourceState())
    source.polled_us, source.more, source.failure = event.at_us, fact.more, fact.failure
    source.failures = source.failures + 1 if fact.failure else 0
    if not fact.failure:
        source.cursor = fact.cursor


def _raised(state: State, fact: AlertRaised, event: Event) -> None:
    alert = of_duty(state).alerts.setdefault(fact.alert, AlertState())
    alert.raised, alert.raised_us, alert.acknowledged = True, event.at_us, False
    alert.item_id, alert.detail = fact.item_id, fact.detail


def _cleared(state: State, fact: AlertCleared, event: Event) -> None:
    alert = of_duty(state).alerts.setdefault(fact.alert, AlertState())
    alert.raised, alert.cleared_us, alert.acknowledged, alert.item_id = False, event.at_us, False, ""


def _acknowledged(state: State, fact: AlertAcknowledged, event: Event) -> None:
    state.stirred()
    if alert := of_duty(state).alerts.get(fact.alert):
        alert.acknowledged = True


def _answered(state: State, fact: UserResume | ApprovalDecided, event: Event) -> None:
    """Go on from now: the instants of a pause are not missed, a user did not want them."""
    own = of_duty(state)
    if isinstance(fact, ApprovalDecided):
        for alert in own.alerts.values():
            if alert.raised and alert.item_id == fact.item_id:  # either answer says that a user has seen it
                alert.acknowledged = True
        if fact.item_id != own.item_id:
            return
        own.item_id = ""
    own.held = isinstance(fact, ApprovalDecided) and fact.verdict == "deny"
    own.failures = 0
    own.through_us, own.run = max(own.through_us, event.at_us), False


FOLD: Mapping[type[Fact], Apply] = {
    SessionCreated: _defined,
    DutyChanged: _defined,
    TriggerOffered: _offered,
    UserMessage: _offered,
    TriggerSkipped: _skipped,
    TriggerMissed: _passed,
    ScheduleRewound: _passed,
    TriggerFired: _fired,
    ChildFinished: _child,
    FiringEnded: _ended,
    TriggerDead: _dead,
    TriggerReplayed: _replayed,
    ValueReported: _value,
    UserResume: _answered,
    ApprovalDecided: _answered,
    SourcePolled: _polled,
    AlertRaised: _raised,
    AlertCleared: _cleared,
    AlertAcknowledged: _acknowledged,
}
