"""OpenAI's Responses and Chat APIs, and the servers that speak the latter: Ollama, vLLM, LM Studio."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from holdfast.clock import Clock
from holdfast.model.base import ModelRequest
from holdfast.model.direct.model import DirectModel, Family
from holdfast.model.direct.wire import Patience
from holdfast.model.names import Endpoint
from holdfast.model.prices import PriceList
from holdfast.session.context.conversation import TextPart

# If the streamed arguments of a call differ from its summary, data was lost, and the call must not run.
warnings.filterwarnings("error", message="The provider sent a `function_call_arguments.done`", category=UserWarning)

_WHOLE = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
"""Treat a stream without a finish reason as cut off."""

_LOCAL = OpenAIModelProfile(
    openai_chat_streaming_requires_finish_reason=True, openai_chat_supports_max_completion_tokens=False
)
"""Custom servers expect the older name of the response limit."""

_NO_KEY = "none"
"""The library requires a key; local servers ignore it."""


def _sdk(endpoint: Endpoint, client: httpx2.AsyncClient) -> AsyncOpenAI:
    return AsyncOpenAI(api_key=endpoint.key or _NO_KEY, base_url=endpoint.base_url, http_client=client, max_retries=0)


def _cache_key(request: ModelRequest) -> str:
    """Return a key shared by all requests with the same pinned head, so that they reach the same cache."""
    digest = hashlib.sha256(request.system.encode("utf-8", "replace"))
    first = request.messages[0].parts[0] if request.messages and request.messages[0].parts else None
    if isinstance(first, TextPart):
        digest.update(first.text.encode("utf-8", "replace"))
    return f"holdfast-{digest.hexdigest()[:32]}"


def _thinking(request: ModelRequest) -> dict[str, Any]:
    if not request.thinking:
        return {}
    return {"thinking": False if request.thinking == "off" else request.thinking}


class Responses:
    """OpenAI's Responses API. Nothing is stored at the provider: reasoning is returned to it encrypted."""

    signs = True
    marks_cache = False

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """Build the library's model."""
        provider = OpenAIProvider(openai_client=_sdk(endpoint, client))
        return OpenAIResponsesModel(endpoint.name.model, provider=provider)

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Request settings: no storage, and one cache key per session."""
        return {
            "max_retries": 0,
            "openai_store": False,
            "openai_prompt_cache_key": _cache_key(request),
            "openai_prompt_cache_diagnostics": False,
            **_thinking(request),
        }


class Chat:
    """OpenAI's Chat API."""

    signs = False
    marks_cache = False

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """Build the library's model."""
        provider = OpenAIProvider(openai_client=_sdk(endpoint, client))
        return OpenAIChatModel(endpoint.name.model, provider=provider, profile=_WHOLE)

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Request settings: one cache key per session."""
        return {"max_retries": 0, "openai_prompt_cache_key": _cache_key(request), **_thinking(request)}


class Compatible:
    """A server with the Chat API, without OpenAI's own extensions."""

    signs = False
    marks_cache = False

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """Build the library's model."""
        provider = OpenAICompatibleProvider(endpoint.name.provider, openai_client=_sdk(endpoint, client))
        return OpenAIChatModel(endpoint.name.model, provider=provider, profile=_LOCAL)

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Request settings: only the reasoning effort."""
        return {"max_retries": 0, **_thinking(request)}


_FAMILIES: dict[str, type[Family]] = {"openai": Responses, "openai-chat": Chat}


def connect(endpoint: Endpoint, prices: PriceList, clock: Clock, patience: Patience | None = None) -> DirectModel:
    """Connect to the model at an endpoint."""
    family = _FAMILIES.get(endpoint.name.provider, Compatible)
    return DirectModel(endpoint, family(), prices, clock, patience)
