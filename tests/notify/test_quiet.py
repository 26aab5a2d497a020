"""Quiet hours by the wall clock, over midnight and over the changes of summer time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.errors import UsageError
from holdfast.notify.base import parse_quiet, quiet_until

ZURICH = "22:00-07:00 Europe/Zurich"


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("spec", "now", "until"),
    [
        (ZURICH, "2026-01-10T20:59:59", None),
        (ZURICH, "2026-01-10T21:00:00", "2026-01-11T06:00:00"),
        (ZURICH, "2026-01-11T05:59:59", "2026-01-11T06:00:00"),
        (ZURICH, "2026-01-11T06:00:00", None),
        (ZURICH, "2026-07-10T20:00:00", "2026-07-11T05:00:00"),
        # In the night of 29 March clocks go from 02:00 to 03:00: the night is an hour shorter.
        (ZURICH, "2026-03-28T21:00:00", "2026-03-29T05:00:00"),
        # In the night of 25 October they go back from 03:00 to 02:00: an hour longer.
        (ZURICH, "2026-10-24T20:00:00", "2026-10-25T06:00:00"),
        # The end lies in the hour that does not exist: it is over when the wall jumps past it.
        ("23:00-02:30 Europe/Zurich", "2026-03-29T00:30:00", "2026-03-29T01:00:00"),
        # The start lies there: it begins with the jump.
        ("02:30-04:00 Europe/Zurich", "2026-03-29T00:59:00", None),
        ("02:30-04:00 Europe/Zurich", "2026-03-29T01:00:00", "2026-03-29T02:00:00"),
        # 02:00 to 03:00 comes twice: the wall shows half past two twice, and it is quiet twice.
        ("01:00-02:30 Europe/Zurich", "2026-10-25T00:10:00", "2026-10-25T00:30:00"),
        ("01:00-02:30 Europe/Zurich", "2026-10-25T00:40:00", None),
        ("01:00-02:30 Europe/Zurich", "2026-10-25T01:10:00", "2026-10-25T01:30:00"),
        # By day, in a zone of three quarters of an hour; and a zone without summer time.
        ("12:00-14:00 Asia/Kathmandu", "2026-05-01T06:15:00", "2026-05-01T08:15:00"),
        ("00:00-23:59 UTC", "2026-05-01T00:00:01", "2026-05-01T23:59:00"),
        # Samoa had no 30 December 2011.
        ("22:00-07:00 Pacific/Apia", "2011-12-30T09:00:00", "2011-12-30T17:00:00"),
    ],
)
def test_when_quiet_ends(spec: str, now: str, until: str | None) -> None:
    assert quiet_until(utc(now), spec) == (None if until is None else utc(until))


def test_the_end_is_the_first_moment_that_is_not_quiet() -> None:
    """Every half hour of a year, against the definition."""
    hours = parse_quiet(ZURICH)
    half_hour = 1_800 * 1_000_000
    for step in range(2 * 24 * 365):
        now = utc("2026-01-01T00:00:00") + step * half_hour
        if not hours.holds(now) or step % 7:
            continue
        end = quiet_until(now, ZURICH)
        assert end is not None
        assert not hours.holds(end)
        assert hours.holds(end - 1)
        assert end - now <= 10 * 3600 * 1_000_000


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "expected two times"),
        ("22-7 Europe/Zurich", "expected two times"),
        ("22:00-07:00", "expected two times"),
        ("25:00-07:00 Europe/Zurich", "23:59"),
        ("22:00-07:60 Europe/Zurich", "23:59"),
        ("07:00-07:00 Europe/Zurich", "all day"),
        ("22:00-07:00 Europe/Zürich", "expected two times"),
        ("22:00-07:00 Europe/Zuerich", "unknown time zone 'Europe/Zuerich'"),
        ("22:00-07:00 Europe", "unknown time zone"),
        ("22:00-07:00 /etc/passwd", "unknown time zone"),
        ("22:00-07:00 CEST", "unknown time zone"),
    ],
)
def test_quiet_hours_that_cannot_be_meant(spec: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        quiet_until(0, spec)
    assert "22:00-07:00 Europe/Zurich" in str(caught.value)
