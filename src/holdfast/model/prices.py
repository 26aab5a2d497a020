"""What models cost: a table of one's own, and the shape that any price list has."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any, Protocol

from holdfast.errors import UsageError
from holdfast.facts.base import Usage
from holdfast.session.money import Price, price_per_mtok

_FIELDS = ("input_per_mtok", "output_per_mtok", "cache_read_per_mtok", "cache_write_per_mtok")

EXAMPLE = '[prices."ollama:qwen3"] input_per_mtok = 0 output_per_mtok = 0'
"""A right entry, shown with every complaint about a wrong one."""

_DOLLARS_MAX = 1_000_000


class PriceList(Protocol):
    """What a model's tokens cost. None says that nobody knows."""

    def cost(self, usage: Usage) -> int | None:
        """What that usage costs, in pico-dollars."""
        ...

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """The most that so many tokens can cost, whichever of the input the provider caches."""
        ...


class NoPrice:
    """Nobody knows what the model costs."""

    def cost(self, usage: Usage) -> int | None:
        """Unknown."""
        return None

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """Unknown."""
        return None


class OwnPrice:
    """A price that somebody set in `holdfast.toml`."""

    def __init__(self, price: Price) -> None:
        self._price = price

    def cost(self, usage: Usage) -> int | None:
        """What that usage costs, in pico-dollars."""
        return self._price.cost(usage)

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """All input at the dearest of the three kinds: a provider charges more for writing its cache."""
        dearest = max(self._price.input, self._price.cache_write, self._price.cache_read)
        return input_tokens * dearest + output_tokens * self._price.output


def parse_prices(value: object, where: str) -> dict[str, Price]:
    """The table `[prices]` of a settings file: model name → price. Raises `UsageError` with a right example.

    Dollars per million tokens. Without `cache_read_per_mtok` or `cache_write_per_mtok`, cached tokens cost
    as input ones.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"prices in {where} has to be a table of models; an example is {EXAMPLE}")
    return {name: _price(name, entry, where) for name, entry in value.items()}


def _price(name: str, entry: object, where: str) -> Price:
    place = f"the price of {name!r} in {where}"
    if not isinstance(entry, Mapping):
        raise UsageError(f"{place} has to be a table; an example is {EXAMPLE}")
    for field in entry:
        if field not in _FIELDS:
            raise UsageError(f"{place} has the unknown key {field!r}; there are {', '.join(_FIELDS)}")
    for field in _FIELDS[:2]:
        if field not in entry:
            raise UsageError(f"{place} has no {field}; an example is {EXAMPLE}")
    return price_per_mtok(
        *(_dollars(entry[field], f"{place}: {field}") for field in _FIELDS[:2]), **_cached(entry, place)
    )


def _cached(entry: Mapping[str, Any], place: str) -> dict[str, float]:
    return {
        field.removesuffix("_per_mtok"): _dollars(entry[field], f"{place}: {field}")
        for field in _FIELDS[2:]
        if field in entry
    }


def _dollars(value: object, place: str) -> float:
    try:
        amount = Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except DecimalException:
        amount = None
    if amount is None or not amount.is_finite() or not 0 <= amount <= _DOLLARS_MAX:
        raise UsageError(f"{place} is {value!r}, not dollars from 0 to {_DOLLARS_MAX}; an example is {EXAMPLE}")
    return float(amount)
