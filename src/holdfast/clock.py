"""Clocks: the only source of time. Times are whole microseconds since 1970, UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import anyio

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """A source of time, and waiting."""

    def now_us(self) -> int:
        """Wall time. It may jump; use it for stamps and due times only."""
        ...

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start that never go back; for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


def boot_s() -> float:
    """Seconds since this machine started, with those that it slept: for limits that others count too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Return the kernel's id of this boot: data not synced before another boot does not count (S8)."""
    return _BOOT_ID.read_text().strip()


DAY = "%Y-%m-%d"
"""Form of a date."""


def local_time(at_us: int, form: str = "%Y-%m-%d %H:%M:%S %Z") -> str:
    """Format a time for a user of this machine, in its local time with the name of the zone (`TZ`)."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).astimezone().strftime(form)


def rfc3339(at_us: int) -> str:
    """Format a time as RFC 3339 text with microseconds and `Z`."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
