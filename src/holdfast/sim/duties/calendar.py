"""Instants of the simulated schedules, found day by day without the library that the product uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from holdfast.facts.duty import Schedule

SECOND_US = 1_000_000


@dataclass(frozen=True)
class Pattern:
    """A cron expression, with its minutes, hours, and weekdays (Monday is 0). `wild` ones name no hour."""

    cron: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    wild: bool = False


PATTERNS = (
    Pattern("30 2 * * *", (30,), (2,)),
    Pattern("15 6,18 * * *", (15,), (6, 18)),
    Pattern("0 9 * * 1-5", (0,), (9,), (0, 1, 2, 3, 4)),
    Pattern("45 2 * * 0", (45,), (2,), (6,)),
    Pattern("20 * * * *", (20,), tuple(range(24)), wild=True),
)
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")


def true_instants(schedule: Schedule, since_us: int, first_us: int, last_us: int) -> list[int]:
    """Return the instants in `(first_us, last_us]`."""
    if schedule.every_s:
        step_us = schedule.every_s * SECOND_US
        number = max(1, (first_us - since_us) // step_us + 1)
        return list(range(since_us + number * step_us, last_us + 1, step_us))
    days = range(first_us // (86_400 * SECOND_US) - 1, last_us // (86_400 * SECOND_US) + 2)
    found = {each for day in days for each in _of_day(schedule.cron, schedule.zone, day)}
    return sorted(each for each in found if first_us < each <= last_us)


@cache
def _of_day(cron: str, zone: str, day: int) -> tuple[int, ...]:
    pattern = next(each for each in PATTERNS if each.cron == cron)
    on, place = date(1970, 1, 1) + timedelta(days=day), ZoneInfo(zone)
    if on.weekday() not in pattern.weekdays:
        return ()
    found: list[int] = []
    for hour in pattern.hours:
        for minute in pattern.minutes:
            found += _times(datetime.combine(on, time(hour, minute)), place, wild=pattern.wild)
    return tuple(found)


def _times(naive: datetime, place: ZoneInfo, *, wild: bool) -> list[int]:
    """Return the instants of a local time: at the end of a gap, the first of two, or both for a wild hour."""
    both = [naive.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1)]
    real = [each for each in both if each.astimezone(place).replace(tzinfo=None) == naive]
    if not real:
        return [] if wild else [_gap_end(both[1], place)]
    chosen = sorted(set(real)) if wild else real[:1]
    return [_us(each) for each in chosen]


def _gap_end(at: datetime, place: ZoneInfo) -> int:
    """Return the first minute after the gap in which a local time does not exist."""
    before = at.astimezone(place).utcoffset()
    while at.astimezone(place).utcoffset() == before:
        at += timedelta(minutes=1)
    return _us(at)


def _us(at: datetime) -> int:
    return int(at.timestamp()) * SECOND_US
