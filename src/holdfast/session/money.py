"""Money as whole pico-dollars, and the ledger that guards it (S15).

A move follows from a fact alone, so the ledger's rows can be rebuilt from the events. The log applies
moves inside the append transaction and refuses the append when one does not fit.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, DecimalException

import msgspec

from holdfast.facts.base import Fact, Usage
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import SessionCreated, SessionUpdated

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
    """An account begins, with its cap or none."""

    account_id: str
    cap_pico: int | None


class SetCap(msgspec.Struct, frozen=True):
    """An account's cap becomes this."""

    account_id: str
    cap_pico: int


class Reserve(msgspec.Struct, frozen=True):
    """Hold an amount on every account of the path, or refuse."""

    path: tuple[str, ...]
    request_seq: int
    amount_pico: int


class Settle(msgspec.Struct, frozen=True):
    """Give the hold of that request back and spend what it cost."""

    path: tuple[str, ...]
    request_seq: int
    cost_pico: int


Move = OpenAccount | SetCap | Reserve | Settle


def path_of(created: SessionCreated, session_id: str) -> tuple[str, ...]:
    """The accounts of a session from leaf to root; its own when none are named."""
    return created.accounts or (session_id,)


def move(fact: Fact, seq: int, path: tuple[str, ...]) -> Move | None:
    """What a fact at `seq` of a session with that account path does to the ledger."""
    match fact:
        case SessionCreated():
            return OpenAccount(path[0], fact.limits.budget_pico)
        case SessionUpdated(budget_pico=int() as cap):
            return SetCap(path[0], cap)
        case ModelRequestStart(reserved_pico=int() as amount):
            return Reserve(path, seq, amount)
        case ModelRequestEnd():
            return Settle(path, fact.request_seq, fact.cost_pico or 0)
        case _:
            return None
