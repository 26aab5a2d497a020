"""Money lines and breakers (S15)."""

from __future__ import annotations

from typing import Literal

from holdfast.facts.base import Fact

Period = Literal["total", "day", "week"]
"""What a cap counts: everything, the last 24 hours, the last seven days."""


class BudgetSet(Fact, frozen=True, tag="budget.set"):
    """A cap of an account was set, or lifted with None."""

    wakes = True

    account_id: str
    period: Period
    cap_pico: int | None = None


class BudgetReached(Fact, frozen=True, tag="budget.reached"):
    """A request did not fit under a cap; nothing was spent."""

    account_id: str
    period: Period
    cap_pico: int
    left_pico: int
    wanted_pico: int


class BreakerOpened(Fact, frozen=True, tag="breaker.opened"):
    """Something went wrong too often or cost too much too fast. Until `until_us`, or until a person, it rests.

    `breaker` is `spend_rate`, `tool_failures`, `no_progress`, or `provider:NAME`.
    """

    breaker: str
    detail: str
    until_us: int | None = None


class BreakerClosed(Fact, frozen=True, tag="breaker.closed"):
    """It works again, or a person said to go on."""

    breaker: str
    detail: str = ""
