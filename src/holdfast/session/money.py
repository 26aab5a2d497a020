"""Money as whole pico-dollars, and the ledger that guards it (S15).

A move follows from a fact alone, so the ledger's rows can be rebuilt from the events. The log applies moves inside the
append transaction and refuses the append if one does not fit.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, DecimalException
from typing import Literal

import msgspec

from holdfast.facts.base import Fact, Usage
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionCreated, SessionForked, SessionUpdated
from holdfast.facts.shift import BudgetSet, CarriedAccount, Period, SessionsRemoved, SpendBucket
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.session.home import HOME

PICO = 10**12
"""Number of pico-dollars in a dollar."""

PICO_MAX = 2**62
"""The largest amount of an account, in pico-dollars."""


HOME_ACCOUNT = "home:all"
"""Account of all sessions of a home: the root of each path."""


def pico_from_usd(text: str) -> int:
    """Convert a dollar amount in text (`"2.50"`) to pico-dollars, exactly. Raises `ValueError` for anything else."""
    try:
        amount = Decimal(text) * PICO
    except DecimalException as error:
        raise ValueError(f"{text!r} is not an amount of dollars") from error
    if amount.is_finite() and abs(amount) > PICO_MAX:
        raise ValueError(f"{text!r} dollars are more than the ledger can hold ({usd(PICO_MAX)})")
    if not amount.is_finite() or amount != amount.to_integral_value():
        raise ValueError(f"{text!r} is not an amount of dollars with at most 12 decimals")
    return int(amount)


def usd(pico: int | None) -> str:
    """Format pico-dollars: `$0.0042`, or `unpriced` if unknown."""
    if pico is None:
        return "unpriced"
    dollars = Decimal(pico) / PICO
    sign = "-" if pico < 0 else ""
    return f"{sign}${abs(dollars):.4f}" if abs(dollars) < 1 else f"{sign}${abs(dollars):.2f}"


def usd_float(pico: int | None) -> float | None:
    """Convert pico-dollars to a number for JSON; None stays None."""
    return None if pico is None else pico / PICO


class Price(msgspec.Struct, frozen=True):
    """Pico-dollars per token of each kind."""

    input: int
    output: int
    cache_read: int
    cache_write: int

    def cost(self, usage: Usage) -> int:
        """Return the cost of that usage in pico-dollars."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
        )


def price_per_mtok(
    input_per_mtok: float, output_per_mtok: float, cache_read: float | None = None, cache_write: float | None = None
) -> Price:
    """Return a price from dollars per million tokens; cached tokens default to the price of input tokens."""

    def per_token(dollars: float) -> int:
        return int((Decimal(str(dollars)) * PICO / 1_000_000).to_integral_value(ROUND_CEILING))

    return Price(
        per_token(input_per_mtok),
        per_token(output_per_mtok),
        per_token(input_per_mtok if cache_read is None else cache_read),
        per_token(input_per_mtok if cache_write is None else cache_write),
    )


class OpenAccount(msgspec.Struct, frozen=True):
    """Open a session's own account, with its cap or none. It must be new."""

    account_id: str
    cap_pico: int | None
    at_us: int = 0


class NameAccount(msgspec.Struct, frozen=True):
    """Put an account on the path of a new session; a new account has no cap."""

    account_id: str


class SetCap(msgspec.Struct, frozen=True):
    """Set or remove an account's cap over a period; opens the account if necessary."""

    account_id: str
    cap_pico: int | None
    period: Period = "total"
    at_us: int = 0


class Reserve(msgspec.Struct, frozen=True):
    """Reserve an amount on every account of the path, or refuse. `seq` is the event that reserves it."""

    path: tuple[str, ...]
    seq: int
    amount_pico: int


class Settle(msgspec.Struct, frozen=True):
    """Release the reservation of the event at `seq`, and book its cost at that time."""

    path: tuple[str, ...]
    seq: int
    cost_pico: int
    at_us: int = 0


class Carry(msgspec.Struct, frozen=True):
    """Add what removed sessions spent on an account, and the caps that it had then."""

    account: CarriedAccount


Move = OpenAccount | NameAccount | SetCap | Reserve | Settle | Carry


def path_of(created: SessionCreated | SessionForked, session_id: str) -> tuple[str, ...]:
    """Return the accounts of a session from leaf to root; its own if none are named. The home has none."""
    if session_id == HOME:
        return ()
    return created.accounts or (session_id,)


def move(fact: Fact, seq: int, path: tuple[str, ...], at_us: int) -> tuple[Move, ...]:
    """Return the ledger moves of a fact at `seq` of a session with that account path, at that time."""
    if type(fact) not in _MOVERS:
        return ()
    match fact:
        case ModelRequestStart(reserved_pico=int() as amount):
            return (Reserve(path, seq, amount),)
        case ToolDispatched():
            return _dispatched(fact, seq, path, at_us)
        case ModelRequestEnd():
            return (Settle(path, fact.request_seq, fact.cost_pico or 0, at_us),)
        case ToolResult() | ToolOutcomeUnknown():
            return (Settle(path, fact.dispatch_seq, fact.cost_pico or 0, at_us),) if fact.dispatch_seq else ()
        case SessionCreated() | SessionForked():
            cap = fact.limits.budget_pico if isinstance(fact, SessionCreated) else fact.budget_pico
            return _opened(path, cap, at_us)
        case SessionsRemoved():
            return tuple(map(Carry, fact.accounts))
        case _:
            return _caps(fact, path, at_us)


def _dispatched(fact: ToolDispatched, seq: int, path: tuple[str, ...], at_us: int) -> tuple[Move, ...]:
    """Settle an earlier dispatch of the call before its new reservation, which might not fit otherwise."""
    before = (Settle(path, fact.settles_seq, fact.settled_pico, at_us),) if fact.settles_seq else ()
    return (*before, Reserve(path, seq, fact.reserved_pico)) if fact.reserved_pico is not None else before


def _opened(path: tuple[str, ...], cap: int | None, at_us: int) -> tuple[Move, ...]:
    if not path:
        return ()
    return (OpenAccount(path[0], cap, at_us), *map(NameAccount, path[1:]))


def _caps(fact: Fact, path: tuple[str, ...], at_us: int) -> tuple[Move, ...]:
    match fact:
        case SessionUpdated(budget_pico=int() as cap) if path:
            return (SetCap(path[0], cap, at_us=at_us),)
        case BudgetSet(account_id=account, period=period, cap_pico=cap_or_none):
            return (SetCap(account, cap_or_none, period, at_us),)
        case ApprovalDecided(verdict="approve", budget_pico=int() as cap) if fact.account_id:
            return (SetCap(fact.account_id, cap, at_us=at_us),)
        case _:
            return ()


CAP_FACTS = frozenset((SessionCreated, SessionForked, SessionUpdated, BudgetSet, ApprovalDecided))
"""Facts that may set a cap."""

_MOVERS = CAP_FACTS | {
    ModelRequestStart,
    ModelRequestEnd,
    ToolDispatched,
    ToolResult,
    ToolOutcomeUnknown,
    SessionsRemoved,
}


Buckets = tuple[tuple[int, int], ...]
"""`(number, pico-dollars)` in order of time: bucket n begins n bucket widths after the epoch."""

Window = Literal["hour", "day", "week"]
"""A period that ends now."""

_S = 1_000_000
FINE_US = 300 * _S
"""Width of the buckets for the last hour."""
HOUR_US = 3_600 * _S
"""Width of the buckets for the last day and the last week."""
_FINE_KEPT = 25
_HOURS_KEPT = 180
"""Number of hourly buckets to keep. A week is at most 169; the rest allows for a clock that ran ahead."""

WINDOW_US: dict[Window, int] = {"hour": HOUR_US, "day": 24 * HOUR_US, "week": 168 * HOUR_US}
"""Length of each window."""


class Spend(msgspec.Struct, frozen=True, array_like=True):
    """Recent spend of an account, in five-minute and hourly buckets."""

    fine: Buckets = ()
    hours: Buckets = ()


class AccountRow(msgspec.Struct, frozen=True):
    """A money account: its spend, its reservations, and the caps over both.

    `cap_pico` is over everything, the others over the last 24 hours and the last seven days; None is no cap. `caps_us`
    is when a cap was last set.
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
        """Return the cap of that period, None for none."""
        if period == "total":
            return self.cap_pico
        return self.cap_day_pico if period == "day" else self.cap_week_pico

    def spent_in(self, period: Period, now_us: int) -> int:
        """Return the spend that counts under the cap of that period, in pico-dollars, without reservations."""
        return self.spent_pico if period == "total" else spent_within(self.spend, period, now_us)


def add_spend(spend: Spend, at_us: int, pico: int) -> Spend:
    """Return the buckets after one more spend. They keep the newest, so the order of spends does not matter."""
    if not pico:
        return spend
    return Spend(
        _add(spend.fine, at_us // FINE_US, pico, _FINE_KEPT), _add(spend.hours, at_us // HOUR_US, pico, _HOURS_KEPT)
    )


def add_buckets(spend: Spend, gone: CarriedAccount) -> Spend:
    """Return the buckets of a spend and those of removed sessions, as if all had been added one by one."""

    def both(mine: Buckets, others: tuple[SpendBucket, ...], kept: int) -> Buckets:
        sums = dict(mine)
        for bucket in others:
            sums[bucket.number] = sums.get(bucket.number, 0) + bucket.pico
        return tuple(sorted(sums.items())[-kept:])

    return Spend(both(spend.fine, gone.fine, _FINE_KEPT), both(spend.hours, gone.hours, _HOURS_KEPT))


def spent_within(spend: Spend, window: Window, now_us: int) -> int:
    """Return the spend in the window that ends now: never less, and at most one bucket more."""
    return sum(pico for _, pico in _inside(spend, window, now_us))


def frees_us(spend: Spend, window: Window, now_us: int, needed_pico: int) -> int | None:
    """Return when that amount has left the window's spend; None if it holds less."""
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
    """Return the buckets of a window. Buckets after now, from a clock that ran ahead, count too unless they are a whole
    window away.
    """
    length, width = WINDOW_US[window], FINE_US if window == "hour" else HOUR_US
    first, last = (now_us - length) // width, (now_us + length) // width
    buckets = spend.fine if window == "hour" else spend.hours
    return tuple(bucket for bucket in buckets if first <= bucket[0] <= last)
