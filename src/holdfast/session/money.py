"""Money as whole pico-dollars, and the ledger that guards it (S15).

A move follows from a fact alone, so the ledger's rows can be rebuilt from the events. The log applies
moves inside the append transaction and refuses the append when one does not fit.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, DecimalException

import msgspec

from holdfast.facts.base import Fact, Usage
from holdfast.facts.budget import BudgetSet, Period
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionCreated, SessionForked, SessionUpdated
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.session.home import HOME

PICO = 10**12
"""Pico-dollars in a dollar."""

PICO_MAX = 2**62
"""The largest amount of an account, in pico-dollars."""


def pico_from_usd(text: str) -> int:
    """Dollars as written (`"2.50"`) to pico-dollars, exactly. Raises `ValueError` for anything else."""
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
    """Pico-dollars for people: `$0.0042`, `unpriced` when unknown."""
    if pico is None:
        return "unpriced"
    dollars = Decimal(pico) / PICO
    sign = "-" if pico < 0 else ""
    return f"{sign}${abs(dollars):.4f}" if abs(dollars) < 1 else f"{sign}${abs(dollars):.2f}"


def usd_float(pico: int | None) -> float | None:
    """Pico-dollars as a number for JSON; None stays None."""
    return None if pico is None else pico / PICO


class Price(msgspec.Struct, frozen=True):
    """Pico-dollars per token of each kind."""

    input: int
    output: int
    cache_read: int
    cache_write: int

    def cost(self, usage: Usage) -> int:
        """What that usage costs, in pico-dollars."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
        )


def price_per_mtok(
    input_per_mtok: float, output_per_mtok: float, cache_read: float | None = None, cache_write: float | None = None
) -> Price:
    """A price from dollars per million tokens; cached tokens cost as input ones unless said."""

    def per_token(dollars: float) -> int:
        return int((Decimal(str(dollars)) * PICO / 1_000_000).to_integral_value(ROUND_CEILING))

    return Price(
        per_token(input_per_mtok),
        per_token(output_per_mtok),
        per_token(input_per_mtok if cache_read is None else cache_read),
        per_token(input_per_mtok if cache_write is None else cache_write),
    )


class OpenAccount(msgspec.Struct, frozen=True):
    """A session's own account begins, with its cap or none. It must be new."""

    account_id: str
    cap_pico: int | None
    at_us: int = 0


class NameAccount(msgspec.Struct, frozen=True):
    """An account stands on the path of a new session: it begins without a cap unless it is there."""

    account_id: str


class SetCap(msgspec.Struct, frozen=True):
    """An account's cap over a period becomes this, or none; the account begins if it is not there."""

    account_id: str
    cap_pico: int | None
    period: Period = "total"
    at_us: int = 0


class Reserve(msgspec.Struct, frozen=True):
    """Hold an amount on every account of the path, or refuse. `seq` is the event that holds it."""

    path: tuple[str, ...]
    seq: int
    amount_pico: int


class Settle(msgspec.Struct, frozen=True):
    """Give back what the event at `seq` holds, and spend what it cost, at that time."""

    path: tuple[str, ...]
    seq: int
    cost_pico: int
    at_us: int = 0


Move = OpenAccount | NameAccount | SetCap | Reserve | Settle


def path_of(created: SessionCreated | SessionForked, session_id: str) -> tuple[str, ...]:
    """The accounts of a session from leaf to root; its own when none are named. The home has none."""
    if session_id == HOME:
        return ()
    return created.accounts or (session_id,)


def move(fact: Fact, seq: int, path: tuple[str, ...], at_us: int) -> tuple[Move, ...]:
    """What a fact at `seq` of a session with that account path does to the ledger, at that time."""
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
        case _:
            return _caps(fact, path, at_us)


def _dispatched(fact: ToolDispatched, seq: int, path: tuple[str, ...], at_us: int) -> tuple[Move, ...]:
    """An earlier dispatch of the call is settled first: its hold must not stand in the way of this one's."""
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
"""The facts that may set a cap."""

_MOVERS = CAP_FACTS | {ModelRequestStart, ModelRequestEnd, ToolDispatched, ToolResult, ToolOutcomeUnknown}
