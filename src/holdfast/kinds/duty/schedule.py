"""Instants of a schedule. Pure: the same schedule always has the same instants.

Cron expressions are those of Debian's cron (library `cronsim`), also when summer time begins or ends: a job at a time
that is skipped runs right after the gap, one at a time that comes twice runs once, and `*` hours run in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from holdfast.errors import CannotRunSafely
from holdfast.facts.duty import Schedule

SECOND_US = 1_000_000

CHUNK = 2_000
"""Most instants of a cron expression that one decision enumerates; the next decision continues after them."""

GRACE_MAX_S = 3_600

YEARS_US = 10 * 366 * 86_400 * SECOND_US
"""Time within which a schedule has to have an instant: cron finds none beyond 50 years, and users mean less."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_schedule(schedule: Schedule, now_us: int) -> None:
    """Raise `ValueError` for a schedule that does not parse, never fires, or whose jitter mixes its instants."""
    if bool(schedule.every_s) == bool(schedule.cron):
        raise ValueError("a schedule has either an interval or a cron expression")
    if schedule.every_s < 0:
        raise ValueError("an interval is at least one second")
    if schedule.cron:
        _check_cron(schedule, now_us)
    first = list(islice(_after(schedule, now_us, now_us), 3))
    if not first or first[0] - now_us > YEARS_US:
        raise ValueError(f"the schedule {schedule.cron!r} has no instant within ten years: it never fires")
    gap_us = min((later - earlier for earlier, later in pairwise(first)), default=YEARS_US)
    if not 0 <= schedule.jitter_s * SECOND_US < gap_us:
        raise ValueError(f"a jitter of {schedule.jitter_s:g} s has to be less than the time between two instants")
    if not 0 <= schedule.grace_s <= GRACE_MAX_S:
        raise ValueError(f"the grace is between 0 and {GRACE_MAX_S} seconds")


def _check_cron(schedule: Schedule, now_us: int) -> None:
    try:
        zone = ZoneInfo(schedule.zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {schedule.zone!r}; for example: Europe/Berlin") from None
    if len(schedule.cron.split()) != 5:
        raise ValueError(f"{schedule.cron!r} has to have five fields: minute, hour, day, month, weekday")
    cron, wrong = _library()
    try:
        cron(schedule.cron, _local(now_us, zone))
    except wrong as error:
        raise ValueError(f"the cron expression {schedule.cron!r} does not parse: {error}") from error


def instants(schedule: Schedule, since_us: int, after_us: int, until_us: int) -> Sequence[int]:
    """Return the instants in `(after_us, until_us]`; of a cron expression, the first `CHUNK`.

    `since_us` is when the interval began.
    """
    if schedule.every_s:
        step_us = schedule.every_s * SECOND_US
        first = max(1, (after_us - since_us) // step_us + 1)
        return range(since_us + first * step_us, until_us + 1, step_us)
    found = []
    for at_us in islice(_after(schedule, since_us, after_us), CHUNK):
        if at_us > until_us:
            break
        found.append(at_us)
    return found


def next_instant(schedule: Schedule, since_us: int, after_us: int, handled: Callable[[int], bool]) -> int | None:
    """Return the first instant after `after_us` that is not handled yet, None if there is none."""
    return next((each for each in _after(schedule, since_us, after_us) if not handled(each)), None)


def due_us(schedule: Schedule, duty_id: str, instant_us: int) -> int:
    """Return the time at which an instant is due: later by its jitter, which follows from the duty and the instant."""
    if not schedule.jitter_s:
        return instant_us
    drawn = int.from_bytes(hashlib.sha256(f"{duty_id} {instant_us}".encode()).digest()[:8], "big")
    return instant_us + int(schedule.jitter_s * SECOND_US) * drawn // 2**64


def _after(schedule: Schedule, since_us: int, after_us: int) -> Iterator[int]:
    if schedule.every_s:
        step_us = schedule.every_s * SECOND_US
        at_us = since_us + max(1, (after_us - since_us) // step_us + 1) * step_us
        while True:
            yield at_us
            at_us += step_us
    cron, _ = _library()
    previous_us = after_us
    for at in cron(schedule.cron, _local(after_us, ZoneInfo(schedule.zone))):
        at_us = (at.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        if at_us > previous_us:  # an hour that comes twice: the library may begin in its second half
            yield at_us
            previous_us = at_us


def _local(at_us: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone)


def _library() -> tuple[Callable[[str, datetime], Iterator[datetime]], type[Exception]]:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        raise CannotRunSafely("cron expressions need an extra; type: pip install 'holdfast[duty]'") from None
    return CronSim, CronSimError
