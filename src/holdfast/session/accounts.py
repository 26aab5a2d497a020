"""A money account at a glance, and what it spent when: the rolling windows of caps and breakers (S15).

Spend is kept in buckets of absolute time. Which ones are kept does not depend on the order in which
spends arrive, so `verify` makes the same row whatever session it walks first.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.budget import Period

Buckets = tuple[tuple[int, int], ...]
"""`(number, pico-dollars)` in order of time: bucket n begins n bucket widths after the epoch."""

Window = Literal["hour", "day", "week"]
"""A stretch of time that ends now."""

_S = 1_000_000
FINE_US = 300 * _S
"""Width of the buckets that answer for the last hour."""
HOUR_US = 3_600 * _S
"""Width of the buckets that answer for the last day and the last week."""
_FINE_KEPT = 25
_HOURS_KEPT = 180
"""A week is 169 buckets at most; the rest is for what a clock that ran ahead left behind."""

WINDOW_US: dict[Window, int] = {"hour": HOUR_US, "day": 24 * HOUR_US, "week": 168 * HOUR_US}
"""Window → its length."""


class Spend(msgspec.Struct, frozen=True, array_like=True):
    """What an account spent lately: in five-minute buckets and in hours."""

    fine: Buckets = ()
    hours: Buckets = ()


class AccountRow(msgspec.Struct, frozen=True):
    """A money account: what is spent, what is held for open requests, and the caps over both.

    `cap_pico` is over everything, the others over the last 24 hours and the last seven days; None is no
    cap. `caps_us` is when a cap was last set.
    """

    account_id: str
    cap_pico: int | None
    spent_pico: int
    reserved_pico: int
    cap_day_pico: int | None = None
    cap_week_pico: int | None = None
    caps_us: int = 0
    spend: Spend = Spend()

    def cap_of(self, period: Period) -> int | None:
        """The cap of that period, None for none."""
        if period == "total":
            return self.cap_pico
        return self.cap_day_pico if period == "day" else self.cap_week_pico

    def spent_in(self, period: Period, now_us: int) -> int:
        """What counts under the cap of that period, in pico-dollars, without what is held."""
        return self.spent_pico if period == "total" else spent_within(self.spend, period, now_us)


def add_spend(spend: Spend, at_us: int, pico: int) -> Spend:
    """The buckets after one more spend. They keep the newest, so the order of spends does not matter."""
    if not pico:
        return spend
    return Spend(
        _add(spend.fine, at_us // FINE_US, pico, _FINE_KEPT), _add(spend.hours, at_us // HOUR_US, pico, _HOURS_KEPT)
    )


def spent_within(spend: Spend, window: Window, now_us: int) -> int:
    """What was spent in the window that ends now: never less, and at most one bucket more."""
    return sum(pico for _, pico in _inside(spend, window, now_us))


def frees_us(spend: Spend, window: Window, now_us: int, needed_pico: int) -> int | None:
    """When so much of the window's spend is out of it; None when there is not so much in it."""
    length, width = WINDOW_US[window], FINE_US if window == "hour" else HOUR_US
    for number, pico in _inside(spend, window, now_us):
        needed_pico -= pico
        if needed_pico <= 0:
            return (number + 1) * width + length
    return None


def _add(buckets: Buckets, number: int, pico: int, kept: int) -> Buckets:
    if buckets and buckets[-1][0] == number:
        return (*buckets[:-1], (number, buckets[-1][1] + pico))
    sums = dict(buckets)
    sums[number] = sums.get(number, 0) + pico
    return tuple(sorted(sums.items())[-kept:])


def _inside(spend: Spend, window: Window, now_us: int) -> Buckets:
    """The buckets of a window. A clock that ran ahead may have put some after now: those count as well,
    unless they are a whole window away.
    """
    length, width = WINDOW_US[window], FINE_US if window == "hour" else HOUR_US
    first, last = (now_us - length) // width, (now_us + length) // width
    buckets = spend.fine if window == "hour" else spend.hours
    return tuple(bucket for bucket in buckets if first <= bucket[0] <= last)
