"""Model prices: the Protocol of price lists, and prices from settings."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Protocol

from holdfast.errors import UsageError
from holdfast.facts.base import Usage
from holdfast.session.money import Price, price_per_mtok

_FIELDS = ("input_per_mtok", "output_per_mtok", "cache_read_per_mtok", "cache_write_per_mtok")

EXAMPLE = '[prices."ollama:qwen3"] input_per_mtok = 0 output_per_mtok = 0'
"""A valid entry, shown in every error message."""

_DOLLARS_MAX = 1_000_000


class PriceList(Protocol):
    """The price of a model's tokens. A cost of None is unknown."""

    def cost(self, usage: Usage) -> int | None:
        """Return the cost of a usage in pico-dollars."""
        ...

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """Return the largest cost of that many tokens, for any caching of the input."""
        ...


class NoPrice:
    """An unknown price."""

    def cost(self, usage: Usage) -> int | None:
        """Unknown."""
        return None

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """Unknown."""
        return None


class OwnPrice:
    """A price from `holdfast.toml`."""

    def __init__(self, price: Price) -> None:
        self._price = price

    def cost(self, usage: Usage) -> int | None:
        """Return the cost of a usage in pico-dollars."""
        return self._price.cost(usage)

    def worst(self, input_tokens: int, output_tokens: int) -> int | None:
        """Price all input at the highest of the three rates, since providers charge more for cache writes."""
        dearest = max(self._price.input, self._price.cache_write, self._price.cache_read)
        return input_tokens * dearest + output_tokens * self._price.output


def parse_prices(value: object, where: str) -> dict[str, Price]:
    """Parse the table `[prices]` of a settings file: model name → price. Raises `UsageError` with a valid example.

    Prices are dollars per million tokens. Without `cache_read_per_mtok` or `cache_write_per_mtok`, cached tokens
    cost as much as input tokens.
    """
    if not isinstance(value, Mapping):
        raise UsageError(f"prices in {where} must be a table of models; an example is {EXAMPLE}")
    return {name: _price(name, entry, where) for name, entry in value.items()}


def _price(name: str, entry: object, where: str) -> Price:
    place = f"the price of {name!r} in {where}"
    if not isinstance(entry, Mapping):
        raise UsageError(f"{place} must be a table; an example is {EXAMPLE}")
    for field in entry:
        if field not in _FIELDS:
            raise UsageError(f"{place} has the unknown key {field!r}; valid keys are {', '.join(_FIELDS)}")
    for field in _FIELDS[:2]:
        if field not in entry:
            raise UsageError(f"{place} has no {field}; an example is {EXAMPLE}")
    found = {field: _dollars(entry[field], f"{place}: {field}") for field in _FIELDS if field in entry}
    cached = {field.removesuffix("_per_mtok"): found[field] for field in _FIELDS[2:] if field in found}
    return price_per_mtok(found[_FIELDS[0]], found[_FIELDS[1]], **cached)


def _dollars(value: object, place: str) -> float:
    try:
        amount = Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except DecimalException:
        amount = None
    if amount is None or not amount.is_finite() or not 0 <= amount <= _DOLLARS_MAX:
        raise UsageError(f"{place} is {value!r}, not dollars from 0 to {_DOLLARS_MAX}; an example is {EXAMPLE}")
    return float(amount)
