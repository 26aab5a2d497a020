"""Quiet hours: when a person's device stays silent, by the clock on their wall."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import UsageError

EXAMPLE = "22:00-07:00 Europe/Zurich"
"""A right text, shown with every complaint about a wrong one."""

_FORM = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2}) +([A-Za-z0-9_+/-]+)")

_MINUTE_US = 60 * 1_000_000

_LONGEST_MINUTES = 3 * 24 * 60
"""No quiet lasts longer: a zone may skip a day (Samoa, 2011), never two."""


class QuietHours(NamedTuple):
    """From `start` to before `end`, minutes after midnight in `zone`; over midnight when start is later."""

    start: int
    end: int
    zone: ZoneInfo

    def holds(self, at_us: int) -> bool:
        """Whether it is quiet at that moment."""
        local = datetime.fromtimestamp(at_us // 1_000_000, UTC).astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse_quiet(spec: str) -> QuietHours:
    """The quiet hours of a text like `22:00-07:00 Europe/Zurich`. Raises `UsageError`."""
    found = _FORM.fullmatch(spec.strip())
    if found is None:
        raise _wrong(spec, "it is not two times of day and a zone")
    hours = [int(found[index]) for index in (1, 3)]
    minutes = [int(found[index]) for index in (2, 4)]
    if max(hours) > 23 or max(minutes) > 59:
        raise _wrong(spec, "a time of day goes from 00:00 to 23:59")
    start, end = (hour * 60 + minute for hour, minute in zip(hours, minutes, strict=True))
    if start == end:
        raise _wrong(spec, "it would be quiet all day, and nobody would ever be told")
    try:
        zone = ZoneInfo(found[5])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None:
        raise _wrong(spec, f"this machine knows no time zone {found[5]!r}")
    return QuietHours(start, end, zone)


def quiet_until(now_us: int, spec: str) -> int | None:
    """When the quiet that holds now is over, in microseconds; None when it is not quiet now.

    The wall clock decides, so the end is where the wall first shows it: an end inside the hour that summer
    time skips is the moment of the change. In the hour that comes twice it can be quiet twice.
    """
    hours = parse_quiet(spec)
    if not hours.holds(now_us):
        return None
    minute = now_us // _MINUTE_US
    for later in range(minute + 1, minute + _LONGEST_MINUTES):
        if not hours.holds(later * _MINUTE_US):
            return later * _MINUTE_US
    raise _wrong(spec, "it does not end")


def _wrong(spec: str, what: str) -> UsageError:
    return UsageError(f"the quiet hours {spec!r} cannot be used: {what}; an example is: {EXAMPLE}")
