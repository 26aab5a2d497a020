"""Waits in the pure core: what is over when, also after the clock was set."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.facts.codec import Event
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ClockSet, ShiftEnded, ShiftStarted
from holdfast.facts.union import AnyFact, type_of
from holdfast.kinds import KINDS
from holdfast.session.decide import is_idle
from holdfast.session.decide.waits import due, is_over
from holdfast.session.fold import empty, fold
from holdfast.session.state import CLOCK_STEP_US, State

MINUTE_US = 60_000_000
AT_US = 1_000 * MINUTE_US


def told(*facts: tuple[int, AnyFact]) -> State:
    """A session of these facts, each at so many minutes after its beginning."""
    created = SessionCreated(goal="g", agent=Agent("m"), workspace=Workspace("/w"))
    events = []
    for seq, (minutes, fact) in enumerate([(0, created), *facts], 1):
        at_us = AT_US + minutes * MINUTE_US
        events.append(Event("ses_1", seq, 0, at_us, bytes(32), f"evt_{seq}", "brain", type_of(fact), fact))
    return fold(empty("ses_1", KINDS), events)


def said() -> UserMessage:
    """Anything."""
    return UserMessage(content=())


START = ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p")


@pytest.mark.parametrize("minutes", [0, 5, 59])
def test_a_wait_ends_at_its_time(minutes: int) -> None:
    state = told((minutes, said()))
    until_us = AT_US + 60 * MINUTE_US
    assert due(state, 1, until_us) == until_us
    assert not is_over(state, 1, until_us, until_us - 1)
    assert is_over(state, 1, until_us, until_us)


def test_a_wait_that_began_before_the_clock_went_back_ends_so_much_earlier() -> None:
    state = told((10, said()), (-170, said()), (-160, said()))
    assert [(jump.seq, jump.back_us) for jump in state.set_back] == [(3, 180 * MINUTE_US)]
    until_us = AT_US + 60 * MINUTE_US
    assert due(state, 2, until_us) == until_us - 180 * MINUTE_US
    assert due(state, 3, until_us) == until_us, "what began after it knows the new time"


def test_every_time_that_it_went_back_counts() -> None:
    state = told((10, said()), (-50, said()), (0, said()), (-30, said()))
    until_us = AT_US + 60 * MINUTE_US
    assert due(state, 2, until_us) == until_us - (60 + 30) * MINUTE_US
    assert due(state, 4, until_us) == until_us - 30 * MINUTE_US


def test_a_clock_that_is_set_right_by_little_was_not_set() -> None:
    created = told((1, said()))
    event = Event("ses_1", 3, 0, created.at_us - CLOCK_STEP_US, bytes(32), "evt_3", "brain", "user.message", said())
    assert fold(created, [event]).set_back == []


@pytest.mark.parametrize("step_us", [0, 1])
def test_a_reading_that_differs_by_little_is_no_step_back(step_us: int) -> None:
    """The clock and the time since the boot are read one after the other."""
    start = msgspec.structs.replace(START, boot_id="boot-1", booted_us=AT_US, up_us=1)
    noted = ClockSet(boot_id="boot-1", booted_us=AT_US - CLOCK_STEP_US - step_us, up_us=1)
    assert len(told((0, start), (1, noted)).set_back) == step_us


def test_a_parked_session_is_idle_until_its_time_and_not_behind_its_own_end() -> None:
    parked = ShiftEnded(status="parked", reason="timer", due_us=AT_US + 60 * MINUTE_US)
    state = told((0, START), (1, parked))
    assert is_idle(state, AT_US + 2 * MINUTE_US)
    assert not is_idle(state, AT_US + 60 * MINUTE_US)
    assert not is_idle(state, AT_US - 60 * MINUTE_US), "a clock that went back is looked into"


def test_a_clock_set_back_between_a_reading_and_its_append_counts_once() -> None:
    """The reading is from before the jump, the time of its event from after it."""
    up_us = 500 * MINUTE_US
    booted_us = AT_US - up_us
    start = msgspec.structs.replace(START, boot_id="boot-1", booted_us=booted_us, up_us=up_us)
    noted = ClockSet(boot_id="boot-1", booted_us=booted_us - 100 * MINUTE_US, up_us=up_us + 10 * MINUTE_US)
    later = ClockSet(boot_id="boot-1", booted_us=booted_us - 130 * MINUTE_US, up_us=up_us + 11 * MINUTE_US)
    state = told((0, start), (-91, said()), (-120, noted), (-119, later))
    assert [(jump.seq, jump.back_us // MINUTE_US) for jump in state.set_back] == [(3, 101), (4, 29)]


def test_a_wait_that_began_on_a_clock_set_forward_unseen_is_bounded_by_its_length() -> None:
    start = msgspec.structs.replace(START, boot_id="boot-1", booted_us=1, up_us=AT_US)
    again = msgspec.structs.replace(start, booted_us=1 - 5 * MINUTE_US, up_us=AT_US)
    state = told((0, start), (600, said()), (-5, again))  # forward by 600 before the wait, back by 605 after it
    until_us = AT_US + 610 * MINUTE_US
    assert due(state, 3, until_us) == AT_US + 605 * MINUTE_US, "where it was set forward, no event shows"
    assert due(state, 3, until_us, AT_US + 600 * MINUTE_US) == AT_US + 5 * MINUTE_US
