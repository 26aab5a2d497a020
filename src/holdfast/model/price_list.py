"""The price list of genai-prices, which is part of the installation; nothing is downloaded."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal

from genai_prices import Usage as TheirUsage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, Provider

from holdfast.clock import Clock
from holdfast.facts.base import Usage
from holdfast.model.names import Endpoint
from holdfast.model.prices import NoPrice, PriceList
from holdfast.session.money import PICO

_PROVIDERS = {"anthropic": "anthropic", "openai": "openai", "openai-chat": "openai", "google": "google"}
"""Map from Holdfast's provider names to those of genai-prices. A custom server is looked up by its address."""


class Listed:
    """The price of a listed model. It may depend on the size of the request and the time of day."""

    def __init__(self, provider: Provider, model: ModelInfo, clock: Clock) -> None:
        self._provider = provider
        self._model = model
        self._clock = clock

    def cost(self, usage: Usage) -> int:
        """Return the cost of a usage in pico-dollars, rounded up."""
        told = TheirUsage(
            input_tokens=usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        now = datetime.fromtimestamp(self._clock.now_us() / 1_000_000, UTC)
        price = self._model.calc_price(told, self._provider, genai_request_timestamp=now)
        return int((Decimal(price.total_price) * PICO).to_integral_value(ROUND_CEILING))

    def worst(self, input_tokens: int, output_tokens: int) -> int:
        """Price all input at the highest rate of plain, cached, and cache-written tokens. If large requests cost more
        per token, so does their output, so both are priced together.
        """
        kinds = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
        return max(self.cost(Usage(output_tokens=output_tokens, **{kind: input_tokens})) for kind in kinds)


def price_list(endpoint: Endpoint, clock: Clock) -> PriceList:
    """Return the list price of a model, or `NoPrice`."""
    known = _PROVIDERS.get(endpoint.name.provider)
    url = None if known else endpoint.base_url
    try:
        provider, model = get_snapshot().find_provider_model(endpoint.name.model, None, known, url)
        listed = Listed(provider, model, clock)
        listed.cost(Usage(1, 1))
    except (LookupError, ValueError):
        return NoPrice()
    return listed
