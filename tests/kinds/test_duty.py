"""Duties: instants of schedules, what becomes of them, and what a definition may be."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast.facts.duty import (
    SCHEDULE,
    Alert,
    Duty,
    Firing,
    Misfire,
    Overlap,
    Schedule,
    ScheduleRewound,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    TriggerSkipped,
)
from holdfast.facts.people import UserPause
from holdfast.facts.session import SessionCreated, SessionForked, Workspace
from holdfast.facts.shift import ChildOpened, ShiftEnded
from holdfast.kinds import KINDS
from holdfast.kinds.duty.briefing import goal_of
from holdfast.kinds.duty.conductor import decide
from holdfast.kinds.duty.firing import report_problem
from holdfast.kinds.duty.fold import DutyState, of_duty
from holdfast.kinds.duty.schedule import check_schedule, due_us, instants, next_instant
from holdfast.session.actions import CancelChildren, End, Record
from holdfast.session.decide import waits
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from holdfast.sim.duties.calendar import PATTERNS, ZONES, Pattern, true_instants
from tests.kinds.test_kinds import created, story

HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
SPRING_US, AUTUMN_US = 1_773_700_000_000_000, 1_791_900_000_000_000


@pytest.mark.parametrize("begin_us", [SPRING_US, AUTUMN_US], ids=["spring", "autumn"])
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.cron)
def test_instants_are_those_of_the_calendar_when_clocks_change(pattern: Pattern, zone: str, begin_us: int) -> None:
    schedule = Schedule(cron=pattern.cron, zone=zone)
    found = instants(schedule, begin_us, begin_us, begin_us + 30 * DAY_US)
    assert list(found) == true_instants(schedule, begin_us, begin_us, begin_us + 30 * DAY_US)
    assert len(set(found)) == len(found) > 3


def test_a_time_that_comes_twice_fires_once_and_one_that_does_not_exist_fires_after_the_gap() -> None:
    daily = Schedule(cron="30 2 * * *", zone="Europe/Berlin")
    gaps = set()
    for begin_us in (SPRING_US, AUTUMN_US):
        gaps |= {later - earlier for earlier, later in pairwise(instants(daily, 0, begin_us, begin_us + 30 * DAY_US))}
    assert gaps == {DAY_US - HOUR_US // 2, DAY_US, DAY_US + HOUR_US}


def test_jitter_follows_from_the_instant_and_stays_below_its_bound() -> None:
    schedule = Schedule(every_s=3_600, jitter_s=600)
    late = [due_us(schedule, "ses_1", each) - each for each in instants(schedule, 0, 0, 40 * HOUR_US)]
    assert late == [due_us(schedule, "ses_1", each) - each for each in instants(schedule, 0, 0, 40 * HOUR_US)]
    assert all(0 <= each < 600_000_000 for each in late)
    assert len(set(late)) == len(late)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (Schedule(), "either an interval or"),
        (Schedule(every_s=60, cron="* * * * *"), "either an interval or"),
        (Schedule(cron="0 0 30 2 *"), "does not parse"),
        (Schedule(cron="0 0 * * * *"), "five fields"),
        (Schedule(cron="0 0 29 2 *", zone="Nowhere"), "no time zone"),
        (Schedule(every_s=60, jitter_s=60), "less than the time between"),
        (Schedule(every_s=60, grace_s=4_000), "grace"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused(schedule: Schedule, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_schedule(schedule, SPRING_US)


# --- what becomes of instants ------------------------------------------------------------------------------


def duty_state(misfire: Misfire = "once", overlap: Overlap = "skip", **more: object) -> State:
    """A duty of every hour since 0, with nothing handled yet."""
    schedule = Schedule(every_s=3_600, misfire=misfire)
    duty = Duty("d", schedule, overlap, **more)  # type: ignore[arg-type]
    state = fold(empty("s", KINDS), story(created(duty=duty)))
    own = of_duty(state)
    own.since_us = own.through_us = 0
    return state


def facts(state: State, now_us: int) -> tuple[object, ...]:
    action = decide(state, now_us)
    assert isinstance(action, Record), action
    return action.facts


def offer(hour: int) -> TriggerOffered:
    return TriggerOffered(trigger=SCHEDULE, key=str(hour * HOUR_US), time_us=hour * HOUR_US)


def missed(first: int, last: int, policy: Misfire) -> TriggerMissed:
    return TriggerMissed(first_us=first * HOUR_US, last_us=last * HOUR_US, count=last - first + 1, policy=policy)


def test_missed_instants_follow_the_policy() -> None:
    now_us = 5 * HOUR_US + HOUR_US // 2
    assert facts(duty_state("skip"), now_us) == (missed(1, 5, "skip"),)
    assert facts(duty_state("once"), now_us) == (missed(1, 4, "once"), offer(5))
    assert facts(duty_state("all", queue_max=3), now_us) == (offer(1), offer(2), offer(3), missed(4, 5, "all"))


def test_a_clock_years_ahead_makes_one_event_of_all_that_was_missed() -> None:
    years = 3 * 365 * 24
    found = facts(duty_state("once"), years * HOUR_US + HOUR_US // 2)
    assert found == (missed(1, years - 1, "once"), offer(years))


def test_an_instant_in_time_fires_or_follows_the_overlap_policy() -> None:
    now_us = 2 * HOUR_US + 1
    state = duty_state()
    of_duty(state).through_us = HOUR_US
    assert facts(state, now_us) == (offer(2),)
    for overlap, fact in (("skip", TriggerSkipped(time_us=2 * HOUR_US, reason="overlap")), ("queue", offer(2))):
        state = duty_state(overlap=overlap)  # type: ignore[arg-type]
        opened = TriggerFired(firing=1, child_id="c", trigger=SCHEDULE, keys=("x",), time_us=0)
        state = fold(state, story(created(), opened)[1:])
        of_duty(state).through_us = HOUR_US
        assert facts(state, now_us) == (fact,)


def test_a_pause_does_not_lift_the_time_limit_of_a_firing() -> None:
    opened = (ChildOpened(child_id="c", call_id="", goal="g", name="d 1"), TriggerFired(1, "c", SCHEDULE, ("x",), 0))
    made = created(duty=Duty("d", Schedule(every_s=3_600), timeout_s=600.0))
    state = fold(empty("s", KINDS), story(made, *opened, UserPause()))
    limit_us = of_duty(state).running.opened_us + 600_000_000  # type: ignore[union-attr]
    parked = decide(state, limit_us - 1)
    assert isinstance(parked, End)
    assert (parked.fact.reason, parked.fact.due_us) == ("person", limit_us)
    assert decide(state, limit_us) == CancelChildren(("c",))
    stopped = fold(empty("s", KINDS), story(made, *opened, UserPause(stop_seq=3)))
    assert decide(stopped, limit_us - 1) == End(ShiftEnded(status="parked", reason="person", detail=waits.STOPPED))


def test_a_clock_set_back_rewinds_the_schedule_and_repeats_no_instant() -> None:
    state = duty_state("skip", "queue")
    for hour in (1, 2, 3):
        state = fold(state, [story(*([created()] * state.seq), offer(hour))[-1]])
    back_us = HOUR_US + HOUR_US // 2
    assert facts(state, back_us) == (ScheduleRewound(from_us=3 * HOUR_US, to_us=back_us),)
    state = fold(state, [story(*([created()] * state.seq), ScheduleRewound(from_us=3 * HOUR_US, to_us=back_us))[-1]])
    own = of_duty(state)
    assert isinstance(own, DutyState)
    assert own.duty.schedule is not None
    assert next_instant(own.duty.schedule, 0, own.through_us, own.is_covered) == 4 * HOUR_US


def test_a_firing_is_asked_for_the_values_that_its_alerts_watch() -> None:
    alerts = (Alert("a", "errors > 3", clear='errors == 0 && missing("load", "1h")'), Alert("b", "failures > 1"))
    watched, plain = duty_state(alerts=alerts), duty_state()
    assert "[Report these values: errors, load.]" in goal_of(of_duty(watched), 1, (), 0)
    assert "Report these values" not in goal_of(of_duty(plain), 1, (), 0)
    declared = duty_state(alerts=alerts[1:], values={"size": "MB", "files": ""})
    assert "[Report these values: size (MB), files.]" in goal_of(of_duty(declared), 1, (), 0)


def test_a_value_fits_the_names_and_units_of_its_duty() -> None:
    free, typed = Firing("d", 1), Firing("d", 1, {"errors": "lines"})
    assert report_problem(free, {"name": "n", "value": 1.0}) == ""
    assert "not a finite" in report_problem(free, {"name": "n", "value": float("inf")})
    assert "word of alert expressions" in report_problem(free, {"name": "outcome", "value": 1.0})
    assert "no value n" in report_problem(typed, {"name": "n", "value": 1.0})
    assert "is lines, not s" in report_problem(typed, {"name": "errors", "value": 1.0, "unit": "s"})
    assert report_problem(typed, {"name": "errors", "value": 1.0, "unit": "lines"}) == ""


@pytest.mark.parametrize("first", [created(duty=Duty("d")), created(firing=Firing("d", 1))], ids=["duty", "firing"])
def test_a_fork_is_a_plain_session_that_reports_to_no_duty(first: SessionCreated) -> None:
    forked = SessionForked(
        origin="s", origin_seq=1, origin_hash="", goal="g", model="m", workspace=Workspace(path="/f"), accounts=("f",)
    )
    state = fold(empty("s", KINDS), story(first, forked))
    assert (state.tenant.kind.name, state.tenant.own) == ("agent", None)
