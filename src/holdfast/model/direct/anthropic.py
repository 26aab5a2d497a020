"""Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from holdfast.clock import Clock
from holdfast.model.base import ModelRequest
from holdfast.model.direct.model import DirectModel
from holdfast.model.direct.wire import Patience
from holdfast.model.names import Endpoint
from holdfast.model.prices import PriceList

_BUDGETS = {"low": 2_048, "medium": 10_000, "high": 24_000}
"""Reasoning tokens for models that require a number. They count as output."""

_LEAST_BUDGET = 1_024
"""Smallest number that these models accept."""


class Anthropic:
    """Signed reasoning; cache marks at the pinned head (tools, system prompt, first message) and the end."""

    signs = True
    marks_cache = True

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """Build the pydantic-ai model."""
        sdk = AsyncAnthropic(api_key=endpoint.key, base_url=endpoint.base_url, http_client=client, max_retries=0)
        return AnthropicModel(endpoint.name.model, provider=AnthropicProvider(anthropic_client=sdk))

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Request settings. Three cache marks here and one after the first message make the allowed four."""
        settings: dict[str, Any] = {
            "max_retries": 0,
            "anthropic_cache_tool_definitions": True,
            "anthropic_cache_instructions": True,
            "anthropic_cache_messages": True,
        }
        adaptive = bool(model.profile.get("anthropic_supports_adaptive_thinking"))
        if request.thinking and (adaptive or request.thinking == "off"):
            settings["thinking"] = False if request.thinking == "off" else request.thinking
        elif request.thinking and request.max_output_tokens > 2 * _LEAST_BUDGET:
            budget = min(_BUDGETS[request.thinking], request.max_output_tokens - _LEAST_BUDGET)
            settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": budget}
        if model.profile.get("anthropic_binds_thinking_blocks") and request.thinking != "off":
            # A compacted context is another prefix: drop its reasoning there instead of refusing the request.
            settings["anthropic_thinking"] = {
                "type": "adaptive",
                "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            }
        return settings


def connect(endpoint: Endpoint, prices: PriceList, clock: Clock, patience: Patience | None = None) -> DirectModel:
    """Connect to the model at an endpoint."""
    return DirectModel(endpoint, Anthropic(), prices, clock, patience)
