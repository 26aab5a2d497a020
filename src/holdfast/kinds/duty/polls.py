"""When the sources of a duty are polled. Pure."""

from __future__ import annotations

from holdfast.facts.duty import WEBHOOK, Trigger
from holdfast.kinds.duty.actions import PollSource
from holdfast.kinds.duty.fold import DutyState, SourceState

EVENTS_MAX = 500
"""Most events of one poll."""

LONGEST_S = 3_600.0
"""Longest pause after failed polls, unless the interval itself is longer."""


def step(own: DutyState, now_us: int, rung: frozenset[str] = frozenset()) -> PollSource | None:
    """Return the poll that is due; one of a source in `rung`, which changed, is due at once.

    A full queue has no room: the events wait in their source.
    """
    room = own.duty.queue_max - len(own.queue)
    if room <= 0:
        return None
    due = next((each for each in _polled(own) if each.name in rung or now_us >= _due_us(own, each)), None)
    return None if due is None else PollSource(due.name, min(room, EVENTS_MAX))


def due_us(own: DutyState) -> int | None:
    """Return when the next poll is due; None without a source, or while the queue is full."""
    if len(own.queue) >= own.duty.queue_max:
        return None
    return min((_due_us(own, each) for each in _polled(own)), default=None)


def _polled(own: DutyState) -> list[Trigger]:
    return [each for each in own.duty.triggers if each.kind != WEBHOOK and each.every_s > 0]


def _due_us(own: DutyState, trigger: Trigger) -> int:
    """Return when a trigger is polled next: at once if more waits, and later after each failure."""
    source = own.sources.get(trigger.name, SourceState())
    if source.more and not source.failure:
        return source.polled_us
    pause_s = max(trigger.every_s, min(LONGEST_S, trigger.every_s * 2 ** min(source.failures, 12)))
    return source.polled_us + int(pause_s * 1_000_000)
