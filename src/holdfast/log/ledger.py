"""The ledger: accounts from leaf to root, updated by facts and checked before each reservation (S15).

Pure: it reads accounts through a Protocol and keeps the changes for the store to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.errors import BudgetRefused, UsageError
from holdfast.facts.shift import Period
from holdfast.session.money import (
    AccountRow,
    Carry,
    Move,
    NameAccount,
    OpenAccount,
    Reserve,
    SetCap,
    Settle,
    add_spend,
    frees_us,
    usd,
)

_LARGEST_PICO = 2**62
"""Largest amount that leaves room for additions in a 64-bit column: about four million dollars."""

_PERIODS: tuple[Period, ...] = ("total", "day", "week")

_OVER: dict[Period, str] = {"total": "", "day": " for 24 hours", "week": " for seven days"}


class Books(Protocol):
    """The accounts and reservations as stored."""

    def account(self, account_id: str) -> AccountRow | None:
        """Return one account."""
        ...

    def reservation(self, session_id: str, seq: int) -> int | None:
        """Return the reservation of the event at `seq`, in pico-dollars."""
        ...


class _Miss(msgspec.Struct, frozen=True):
    """A cap that an amount exceeds."""

    account: AccountRow
    period: Period
    cap_pico: int
    left_pico: int


class Ledger:
    """The stored books plus the moves of one transaction. `accounts` and `reservations` are the changes; a reservation
    of None is removed. Rolling windows end at `now_us`.
    """

    __slots__ = ("_books", "_now_us", "accounts", "reservations")

    def __init__(self, books: Books, now_us: int) -> None:
        self._books = books
        self._now_us = now_us
        self.accounts: dict[str, AccountRow] = {}
        self.reservations: dict[tuple[str, int], int | None] = {}

    def apply(self, session_id: str, move: Move) -> None:
        """Apply a move. After `BudgetRefused`, the whole transaction is void."""
        match move:
            case Reserve():
                self._reserve(session_id, move)
            case Settle():
                self._settle(session_id, move)
            case OpenAccount(account_id=name, cap_pico=cap, at_us=at_us):
                if self._find(name) is not None:
                    raise UsageError(f"account {name!r} already exists; give the new session an account of its own")
                self._keep(AccountRow(name, None if cap is None else _amount(cap), 0, 0, caps_us=at_us))
            case NameAccount(account_id=name):
                if self._find(name) is None:
                    self._keep(AccountRow(name, None, 0, 0))
            case SetCap(account_id=name, cap_pico=cap):
                account = self._find(name) or AccountRow(name, None, 0, 0)
                self._keep(with_cap(account, move.period, None if cap is None else _amount(cap), move.at_us))
            case Carry():
                pass  # the stored account has it already; only a rebuilt one needs to be told

    def drop(self, session_id: str, seq: int, amount_pico: int, path: tuple[str, ...]) -> None:
        """Release the reservation of a session that is removed, on the accounts of its path that stay."""
        for account in filter(None, map(self._find, path)):
            self._keep(replace(account, reserved_pico=account.reserved_pico - amount_pico))
        self.reservations[session_id, seq] = None

    def cap_time(self, moves: Iterable[Move]) -> int:
        """Return the time of caps set by these moves: now, but later than all earlier caps of the same accounts.

        The events thus order an account's caps across sessions, even if the clock went back.
        """
        named = [self._find(each.account_id) for each in moves if isinstance(each, OpenAccount | SetCap)]
        return max([self._now_us, *(account.caps_us + 1 for account in named if account is not None)])

    def _reserve(self, session_id: str, move: Reserve) -> None:
        amount = _amount(move.amount_pico)
        accounts = [self._need(name) for name in move.path]
        misses = [miss for account in accounts for miss in self._misses(account, amount)]
        if misses:
            raise self._refusal(min(misses, key=lambda miss: miss.left_pico), amount)
        for account in accounts:
            self._keep(replace(account, reserved_pico=account.reserved_pico + amount))
        self.reservations[session_id, move.seq] = amount

    def _misses(self, account: AccountRow, amount: int) -> list[_Miss]:
        out = []
        for period in _PERIODS:
            cap = account.cap_of(period)
            if cap is None:
                continue
            left = cap - account.spent_in(period, self._now_us) - account.reserved_pico
            if amount > left:
                out.append(_Miss(account, period, cap, left))
        return out

    def _refusal(self, miss: _Miss, amount: int) -> BudgetRefused:
        account, held = miss.account, miss.account.reserved_pico
        return BudgetRefused(
            f"{usd(amount)} does not fit: account {account.account_id} has {usd(max(miss.left_pico, 0))} left of "
            f"{usd(miss.cap_pico)}{_OVER[miss.period]}; raise the budget with `holdfast budget`",
            account_id=account.account_id,
            left_pico=miss.left_pico,
            period=miss.period,
            cap_pico=miss.cap_pico,
            wanted_pico=amount,
            held_pico=held,
            retry_us=self._retry(miss, amount, held),
        )

    def _retry(self, miss: _Miss, amount: int, held: int) -> int | None:
        """Return the time at which the amount fits: with reservations unchanged, or else with them released."""
        if miss.period == "total":
            return None
        spend, needed = miss.account.spend, amount - miss.left_pico
        soonest = frees_us(spend, miss.period, self._now_us, needed)
        if soonest is None and needed > held:
            soonest = frees_us(spend, miss.period, self._now_us, needed - held)
        return soonest

    def _settle(self, session_id: str, move: Settle) -> None:
        key = (session_id, move.seq)
        held = self.reservations[key] if key in self.reservations else self._books.reservation(*key)
        cost = _amount(move.cost_pico)
        if held is None and not cost:
            return
        for account in map(self._need, move.path):
            self._keep(
                replace(
                    account,
                    reserved_pico=account.reserved_pico - (held or 0),
                    spent_pico=account.spent_pico + cost,
                    spend=add_spend(account.spend, move.at_us, cost),
                )
            )
        if held is not None:
            self.reservations[key] = None

    def _find(self, account_id: str) -> AccountRow | None:
        return self.accounts.get(account_id) or self._books.account(account_id)

    def _need(self, account_id: str) -> AccountRow:
        account = self._find(account_id)
        if account is None:
            raise UsageError(f"no account {account_id!r} exists on the budget path of this session")
        return account

    def _keep(self, account: AccountRow) -> None:
        self.accounts[account.account_id] = account


def with_cap(account: AccountRow, period: Period, cap_pico: int | None, at_us: int) -> AccountRow:
    """Return the account with a new cap, set at `at_us`."""
    if period == "total":
        return replace(account, cap_pico=cap_pico, caps_us=at_us)
    if period == "day":
        return replace(account, cap_day_pico=cap_pico, caps_us=at_us)
    return replace(account, cap_week_pico=cap_pico, caps_us=at_us)


def _amount(pico: int) -> int:
    if not 0 <= pico <= _LARGEST_PICO:
        raise UsageError(f"{usd(pico)} is not an amount that the ledger can hold (from $0 to {usd(_LARGEST_PICO)})")
    return pico
