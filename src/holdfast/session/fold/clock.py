"""Fold of the wall clock: its readings at some events, and the times when it was set back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalSeen
from holdfast.facts.shift import ClockSet, ShiftEnded, ShiftStarted
from holdfast.session.state import CLOCK_STEP_US, SetBack, State


def passed(state: State, event: Event) -> None:
    """Treat an event earlier than its predecessor as a clock that was set back by at least the difference."""
    if event.at_us < state.at_us - CLOCK_STEP_US:
        state.set_back.append(SetBack(event.seq, state.at_us - event.at_us, event.at_us))


def stood(state: State, fact: ShiftStarted | ShiftEnded | ClockSet | ApprovalSeen, event: Event) -> None:
    """Record a clock reading. Within a boot it is exact, and replaces the estimates from the times of events."""
    boot_id, booted_us = fact.boot_id, fact.booted_us
    if not boot_id or not booted_us:
        return
    if fact.up_us and event.at_us - fact.up_us < booted_us - CLOCK_STEP_US:
        booted_us = event.at_us - fact.up_us  # the clock was set back after the reading, before the append
    if boot_id == state.boot_id:
        shown = [jump for jump in state.set_back if jump.seq > state.clock_seq]
        state.set_back = [jump for jump in state.set_back if jump.seq <= state.clock_seq]
        back_us = state.booted_us - booted_us if went_back(state, boot_id, booted_us) else 0
        if back_us or shown:
            state.set_back += _placed(shown or [SetBack(event.seq, 0, event.at_us)], back_us)
    state.boot_id, state.booted_us, state.clock_seq = boot_id, booted_us, event.seq


def _placed(shown: list[SetBack], back_us: int) -> list[SetBack]:
    """Split a step back of the clock over the jumps that it consists of, so that the later jump shortens a wait which
    began between two of them. The part that the times of events did not show counts before the first.
    """
    placed, rest_us = list[SetBack](), back_us
    for jump in reversed(shown[1:]):  # latest first: setting the clock forward made up for the remainder
        part_us = min(jump.back_us, rest_us)
        rest_us -= part_us
        placed.append(SetBack(jump.seq, part_us, jump.at_us))
    placed.append(SetBack(shown[0].seq, rest_us, shown[0].at_us))
    return placed[::-1]


def went_back(state: State, boot_id: str, booted_us: int) -> bool:
    """Return True if the clock was set back since the latest event that describes it."""
    return boot_id == state.boot_id and booted_us < state.booted_us - CLOCK_STEP_US


def was_set(state: State, boot_id: str, booted_us: int) -> bool:
    """Return True if the wall clock was set since then, also forward: waits may depend on it."""
    return boot_id == state.boot_id and abs(booted_us - state.booted_us) > CLOCK_STEP_US


def _set(state: State, fact: ClockSet, event: Event) -> None:
    stood(state, fact, event)


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {ClockSet: _set}


SPEND_STEP_US = 300_000_000
"""Width of the buckets of recent spend: five minutes."""

SPEND_STEPS = 12
"""Number of buckets in an hour."""


def spend(state: State, pico: int, at_us: int) -> None:
    """Add a cost to the session's total and to its recent spend."""
    if not pico:
        return
    state.cost_pico += pico
    step = at_us // SPEND_STEP_US
    if step in state.spend:
        state.spend[step] += pico
        return
    state.spend[step] = pico
    newest = max(state.spend)
    for old in [each for each in state.spend if each <= newest - SPEND_STEPS]:
        del state.spend[old]
