"""Steering from outside: pause, resume, hand over, caps, the emergency stop. Each is a post with an actor (S3)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.errors import UsageError
from holdfast.facts.budget import BudgetSet, Period
from holdfast.facts.home import EmergencyReleased, EmergencyStopped
from holdfast.facts.session import SessionUpdated
from holdfast.facts.user import UserPause, UserResume
from holdfast.fleet.answers import check_cap
from holdfast.fleet.posting import Poster, person
from holdfast.log.base import PostReceipt, Which
from holdfast.session.decide.people import STOPPED
from holdfast.session.home import HOME, Stop
from holdfast.session.rows import SessionRow

OVER = ("done", "failed", "cancelled")
"""A session that stands like this has nothing to pause or to hand over."""

WITHIN: dict[Period, str] = {"total": "", "day": " within the last 24 hours", "week": " within the last seven days"}


class Stopping(msgspec.Struct, frozen=True):
    """An emergency stop: where it stands, whether it was there before, and the sessions that have to come to rest."""

    stop: Stop
    before: bool
    resting: tuple[SessionRow, ...]


async def pause(poster: Poster, row: SessionRow, reason: str) -> PostReceipt:
    """Have a session rest at its next safe boundary, until it is resumed."""
    _unfinished(row, "pause")
    return await poster.post(row.session_id, UserPause(reason=reason))


async def resume(poster: Poster, row: SessionRow, reason: str, key: str = "") -> PostReceipt:
    """Lift a pause."""
    return await poster.post(row.session_id, UserResume(reason=reason), key)


async def hand_over(poster: Poster, row: SessionRow, name: str) -> PostReceipt:
    """Make a session another person's: they answer its questions from now on."""
    owner = person(name)
    if not owner or not owner.isprintable() or any(char.isspace() for char in owner):
        raise UsageError(f"{name!r} is no person's name; an example is: holdfast handover {row.session_id} anna")
    _unfinished(row, "hand over")
    return await poster.post(row.session_id, SessionUpdated(owner=owner))


def _unfinished(row: SessionRow, what: str) -> None:
    if row.status in OVER:
        raise UsageError(
            f"{row.key or row.session_id} is {row.status}: there is nothing to {what}; `holdfast ps` lists sessions"
        )


async def check_caps(poster: Poster, account_id: str, caps: Mapping[Period, int | None]) -> None:
    """Raise `UsageError` when one of these caps is below what is spent within its period."""
    account = await poster.index.account(account_id) if caps else None
    for period, cap_pico in caps.items():
        if account is not None and cap_pico is not None:
            check_cap(account, cap_pico, account.spent_in(period, poster.clock.now_us()), WITHIN[period])


async def set_cap(
    poster: Poster, row: SessionRow | None, account_id: str, period: Period, cap_pico: int | None
) -> PostReceipt:
    """Set a cap of an account, or lift it with None; in the log of `row`, or in the home's.

    Sessions that wait for money of that account are woken. Raises `UsageError` for a cap below what is spent.
    """
    await check_caps(poster, account_id, {period: cap_pico})
    fact = BudgetSet(account_id=account_id, period=period, cap_pico=cap_pico)
    receipt = await poster.post(row.session_id if row else HOME, fact)
    await wake_for_money(poster, account_id, f"the cap of {account_id} was changed")
    return receipt


async def wake_for_money(poster: Poster, account_id: str, reason: str) -> list[SessionRow]:
    """Have every session looked at that waits for money of an account."""
    rows = await poster.index.sessions(Which(reason="budget"))
    waiting = [row for row in rows if account_id in row.accounts]
    for row in waiting:
        await resume(poster, row, reason)
    return waiting


async def stop_all(poster: Poster, reason: str) -> Stopping:
    """Stop everything: nothing starts any more, and what runs rests at its next safe boundary. Safe to repeat."""
    stop = await poster.index.stopped()
    before = stop is not None
    if stop is None:
        await poster.post(HOME, EmergencyStopped(reason=reason))
        stop = await poster.index.stopped()
        assert stop is not None
    # What is parked cannot start while the stop holds, and keeps what it waits for.
    resting = await poster.index.sessions(Which(status="runnable"))
    for row in resting:
        fact = UserPause(reason=reason or "emergency stop", stop_seq=stop.seq)
        await poster.post(row.session_id, fact, f"stop:{stop.seq}")
    return Stopping(stop, before, tuple(resting))


async def release(poster: Poster, reason: str) -> tuple[Stop | None, list[SessionRow]]:
    """Lift the emergency stop. Returns it, if there was one, and the sessions that may go on. Safe to repeat."""
    stop = await poster.index.stopped()
    if stop is not None:
        await poster.post(HOME, EmergencyReleased(stop_seq=stop.seq, reason=reason), f"release:{stop.seq}")
    paused = await poster.index.sessions(Which(reason="person"))
    stopped = [row for row in paused if row.detail == STOPPED]
    if stop is not None:
        stopped += await poster.index.sessions(Which(status="runnable"))
    for row in stopped:
        await resume(poster, row, reason or "the emergency stop is lifted", f"release:{stop.seq}" if stop else "")
    return stop, stopped
