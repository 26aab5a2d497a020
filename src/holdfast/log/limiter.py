"""The limiter: sessions that run at a time, and requests in a minute, of an account or a model (S15).

Pure: it reads through a Protocol and keeps the changes for the store to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.errors import TooMany, TooSoon
from holdfast.session.limits import Limit, covering, decode, is_open
from holdfast.session.rows import SessionRow


class Held(NamedTuple):
    """A session whose shift has not ended, with the names of the limits that may cover it."""

    session_id: str
    holder: str
    covers: tuple[str, ...]


class Gauges(Protocol):
    """The use of limits as stored."""

    def hold(self, limits: Sequence[str]) -> None:
        """Let no other transaction look at these limits until this one ends."""
        ...

    def held(self) -> list[Held]:
        """Return all sessions whose shift has not ended."""
        ...

    def used_us(self, limit: str) -> int:
        """Return the time until which the rate of a limit is used up, 0 if it never was."""
        ...


def check_room(gauges: Gauges, row: SessionRow, home: SessionRow, live: Callable[[str], bool]) -> None:
    """Raise `TooMany` if others that run reach a limit of the session."""
    limits = {name: limit for name, limit in _of(row, home, row.model).items() if limit.running is not None}
    if limits:
        gauges.hold([*limits])
        others = [each for each in gauges.held() if each.session_id != row.session_id]
        living = {holder for holder in {each.holder for each in others} if live(holder)}
        running = Counter(name for each in others if each.holder in living for name in each.covers)
        for name, limit in limits.items():
            if not is_open(limit, running[name]):
                raise TooMany(
                    f"{running[name]} sessions of the {name} run, as many as its limit allows; {row.session_id} can "
                    "begin when one of them ends; `holdfast limit` shows and changes limits"
                )


def count_request(
    gauges: Gauges, row: SessionRow, home: SessionRow, model: str, used_us: dict[str, int], now_us: int
) -> None:
    """Count a model request under its limits, in `used_us`: until when their rates are used up.

    Raises `TooSoon`; then the whole transaction is void.
    """
    limits = {name: limit for name, limit in _of(row, home, model).items() if limit.per_minute is not None}
    if limits:
        gauges.hold([*limits])
    for name, limit in limits.items():
        before_us = used_us[name] if name in used_us else gauges.used_us(name)
        next_us, used_us[name] = limit.ask(before_us, now_us)
        if next_us > now_us:
            raise TooSoon(
                f"the {name} has a limit of {limit.per_minute} requests a minute, which others use now",
                next_us=next_us,
            )


def _of(row: SessionRow, home: SessionRow, model: str) -> dict[str, Limit]:
    """Return the limits in force that cover a session asking that model, in the order to hold them in."""
    limits = decode(home.marks)
    return {name: limits[name] for name in sorted({*covering(row.accounts, model)}) if name in limits}
