"""Bugs of duties: instants, queue, firings, and waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.facts.codec import Event
from holdfast.facts.duty import Schedule, TriggerDead, TriggerFired, TriggerMissed, TriggerOffered, TriggerSkipped
from holdfast.kinds.duty import conductor, fold
from holdfast.kinds.duty import schedule as schedules
from holdfast.kinds.duty.actions import EndFiring, OpenFiring
from holdfast.kinds.duty.acts import conducting
from holdfast.kinds.duty.fold import DutyState
from holdfast.kinds.duty.kind import DutyKind
from holdfast.session.actions import CancelChildren, End
from holdfast.session.decide import end
from holdfast.session.state import State
from tests.sim.planted.kit import Bed

BED = Bed()
MINUTE_US = 60_000_000


def _facts(patch: pytest.MonkeyPatch, change: Callable[[DutyState, tuple[Any, ...]], tuple[Any, ...]]) -> None:
    """Change what becomes of instants."""
    whole = conductor._handled

    def handled(own: DutyState, schedule: Schedule, found: Sequence[int], now_us: int, *, whole_: bool) -> Any:
        return change(own, whole(own, schedule, found, now_us, whole=whole_))

    patch.setattr(conductor, "_handled", lambda *values, whole: handled(*values, whole_=whole))


def _folded(patch: pytest.MonkeyPatch, fact: type[Any], after: Callable[[State, Any, Event], None]) -> None:
    """Change what an event does to the state."""
    whole = fold.FOLD[fact]

    def apply(state: State, each: Any, event: Event) -> None:
        whole(state, each, event)
        after(state, each, event)

    patch.setattr(DutyKind, "fold", {**fold.FOLD, fact: apply})


@BED.plant("", "misfire")
def skipped_instants_fire_once(patch: pytest.MonkeyPatch) -> None:
    def change(own: DutyState, facts: tuple[Any, ...]) -> tuple[Any, ...]:
        last = facts[-1]
        if isinstance(last, TriggerMissed) and last.policy == "skip":
            return (*facts, conductor._offer(last.last_us))
        return facts

    _facts(patch, change)


@BED.plant("", "misfire", first=1)
def the_oldest_missed_instant_fires(patch: pytest.MonkeyPatch) -> None:
    def change(own: DutyState, facts: tuple[Any, ...]) -> tuple[Any, ...]:
        missed = [each for each in facts if isinstance(each, TriggerMissed)]
        if missed and missed[0].policy == "once" and isinstance(facts[-1], TriggerOffered):
            return (conductor._offer(missed[0].first_us), *facts[:-1])
        return facts

    _facts(patch, change)


@BED.plant("", "misfire", first=1)
def nothing_fires_for_missed_instants(patch: pytest.MonkeyPatch) -> None:
    def change(own: DutyState, facts: tuple[Any, ...]) -> tuple[Any, ...]:
        first, last = facts[0], facts[-1]
        if isinstance(first, TriggerMissed) and first.policy == "once" and isinstance(last, TriggerOffered):
            return (msgspec.structs.replace(first, last_us=last.time_us, count=first.count + len(facts) - 1),)
        return facts

    _facts(patch, change)


@BED.plant("", "counts")
def missed_instants_are_miscounted(patch: pytest.MonkeyPatch) -> None:
    def change(own: DutyState, facts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            msgspec.structs.replace(each, count=each.count + 1) if isinstance(each, TriggerMissed) else each
            for each in facts
        )

    _facts(patch, change)


@BED.plant("", "queue")
def the_queue_of_instants_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    whole = conductor._handled

    def handled(own: DutyState, *values: Any, **named: Any) -> Any:
        wide = msgspec.structs.replace(own, duty=msgspec.structs.replace(own.duty, queue_max=1_000))
        return whole(wide, *values, **named)

    patch.setattr(conductor, "_handled", handled)


@BED.plant("", "overlap", first=1)
def instants_queue_in_spite_of_skip(patch: pytest.MonkeyPatch) -> None:
    def change(own: DutyState, facts: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            conductor._offer(each.time_us) if isinstance(each, TriggerSkipped) and each.reason == "overlap" else each
            for each in facts
        )

    _facts(patch, change)


@BED.plant("", "once")
def handled_instants_come_again_when_the_clock_is_set_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DutyState, "is_covered", lambda self, instant_us: False)


@BED.plant("", "wake")
def the_schedule_is_not_rewound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conductor, "REWIND_US", 10**18)


@BED.plant("", "wake")
def missed_instants_count_as_handled_after_the_clock_is_set_back(patch: pytest.MonkeyPatch) -> None:
    def after(state: State, fact: TriggerMissed, event: Event) -> None:
        own = fold.of_duty(state)
        own.covered = [*own.covered, (fact.first_us, fact.last_us)]

    _folded(patch, TriggerMissed, after)


@BED.plant("", "calendar")
def cron_runs_in_utc(patch: pytest.MonkeyPatch) -> None:
    whole = schedules._after
    patch.setattr(
        schedules, "_after", lambda schedule, *more: whole(msgspec.structs.replace(schedule, zone="UTC"), *more)
    )


@BED.plant("", "calendar")
def an_interval_begins_again_at_each_firing(patch: pytest.MonkeyPatch) -> None:
    def after(state: State, fact: Any, event: Event) -> None:
        fold.of_duty(state).since_us = event.at_us

    _folded(patch, TriggerFired, after)


@BED.plant("", "early")
def jitter_makes_instants_early(patch: pytest.MonkeyPatch) -> None:
    early = lambda schedule, duty_id, instant_us: instant_us - int(schedule.jitter_s * 1e6)  # noqa: E731
    patch.setattr(conductor, "due_us", early)
    patch.setattr(
        conductor, "instants", lambda schedule, since, after, until: schedules.instants(
            schedule, since, after, until + int(schedule.jitter_s * 1e6)
        )
    )  # fmt: skip


@BED.plant("", "one")
def two_firings_at_a_time(patch: pytest.MonkeyPatch) -> None:
    def opened(own: DutyState, now_us: int) -> Any:
        offers = conductor.ready(own, now_us)
        return OpenFiring(own.fired + 1, offers) if offers else None

    patch.setattr(conductor, "_queue", opened)


@BED.plant("", "held")
def failures_do_not_stop_a_duty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conductor, "is_held", lambda own: False)


@BED.plant("", "silent")
def failures_open_no_item(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conducting, "_item", lambda *values: ("", ()))


@BED.plant("", "silent")
def a_firing_without_a_report_is_done(patch: pytest.MonkeyPatch) -> None:
    def at_work(state: State, own: DutyState, now_us: int) -> Any:
        action = whole(state, own, now_us)
        if isinstance(action, EndFiring) and own.running is not None:
            own.running.values = 1
        return action

    whole = conductor._at_work
    patch.setattr(conductor, "_at_work", at_work)


@BED.plant("", "dead")
def events_of_a_failed_firing_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    whole = conductor._at_work

    def at_work(*values: Any) -> Any:
        action = whole(*values)
        return msgspec.structs.replace(action, events=()) if isinstance(action, EndFiring) else action

    patch.setattr(conductor, "_at_work", at_work)


@BED.plant("", "timeout")
def a_firing_may_take_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conductor, "_is_overdue", lambda own, running, now_us: False)
    whole = conductor._deadlines

    def deadlines(state: State, own: DutyState) -> Any:
        opened_us = own.running.opened_us if own.running else 0
        return [each for each in whole(state, own) if each != opened_us + int(own.duty.timeout_s * 1e6)]

    patch.setattr(conductor, "_deadlines", deadlines)


@BED.plant("", "wake")
def a_batch_waits_until_it_is_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conductor, "_batch_us", lambda own, oldest: 2**62)


@BED.plant("", "batch")
def a_batch_has_no_bound(patch: pytest.MonkeyPatch) -> None:
    whole = conductor.ready

    def ready(own: DutyState, now_us: int) -> Any:
        return whole(msgspec.structs.replace(own, duty=msgspec.structs.replace(own.duty, batch=50)), now_us)

    patch.setattr(conductor, "ready", ready)


@BED.plant("", "wake")
def a_duty_parks_without_a_wake(patch: pytest.MonkeyPatch) -> None:
    whole = conductor._park

    def park(*values: Any) -> End:
        ended = whole(*values)
        return End(msgspec.structs.replace(ended.fact, due_us=None))

    patch.setattr(conductor, "_park", park)


@BED.plant("", "order")
def a_full_queue_drops_events(patch: pytest.MonkeyPatch) -> None:
    def after(state: State, fact: TriggerOffered, event: Event) -> None:
        own = fold.of_duty(state)
        if fact.trigger == "hook" and len(own.queue) > own.duty.queue_max:
            own.queue.pop()

    _folded(patch, TriggerOffered, after)


@BED.plant("", "order")
def a_replayed_event_lost_its_content(patch: pytest.MonkeyPatch) -> None:
    def after(state: State, fact: TriggerDead, event: Event) -> None:
        own = fold.of_duty(state)
        own.dead = {key: fold.Offer("", key, event.at_us, 0, event.at_us) for key in own.dead}

    _folded(patch, TriggerDead, after)


@BED.plant("", "ended")
def the_end_of_a_firing_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    whole = conductor._at_work

    def at_work(state: State, own: DutyState, now_us: int) -> Any:
        action = whole(state, own, now_us)
        return action if isinstance(action, CancelChildren) else None

    patch.setattr(conductor, "_at_work", at_work)


@BED.plant("", "fired")
def replayed_events_fire_again_without_a_word(patch: pytest.MonkeyPatch) -> None:
    def after(state: State, fact: TriggerDead, event: Event) -> None:
        own = fold.of_duty(state)
        own.queue += [own.dead[key] for key in fact.keys if key in own.dead and own.dead[key].seq]

    _folded(patch, TriggerDead, after)


@BED.plant("", "timeout")
def nothing_ends_a_firing_of_a_paused_duty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conductor, "end", lambda *values: end(*values[:4]))
