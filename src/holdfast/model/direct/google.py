"""Google's Gemini API."""

from __future__ import annotations

import warnings
from typing import Any

import httpx2
from google.genai.client import Client
from google.genai.types import HttpOptions, HttpRetryOptions
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.google import GoogleProvider

from holdfast.clock import Clock
from holdfast.model.base import ModelRequest
from holdfast.model.direct.model import DirectModel
from holdfast.model.direct.wire import Patience, trusted
from holdfast.model.names import Endpoint
from holdfast.model.prices import PriceList

# Suppress the warning for a finish reason that the library does not know.
warnings.filterwarnings("ignore", message=".* is not a valid FinishReason", category=UserWarning)


class Google:
    """Signatures belong to the parts they sign, not to the reasoning. Caching is automatic."""

    signs = False
    marks_cache = False

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """Build the pydantic-ai model."""
        options = HttpOptions(
            base_url=endpoint.base_url,
            httpx_async_client=client,
            # The client has its own TLS context; without these options, the library reads all certificates twice more.
            async_client_args={"verify": trusted(), "ssl": trusted()},
            retry_options=HttpRetryOptions(attempts=1),
        )
        sdk = Client(vertexai=False, api_key=endpoint.key, http_options=options)
        return GoogleModel(endpoint.name.model, provider=GoogleProvider(client=sdk))

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Request settings: the reasoning effort."""
        if not request.thinking:
            return {}
        return {"thinking": False if request.thinking == "off" else request.thinking}


def connect(endpoint: Endpoint, prices: PriceList, clock: Clock, patience: Patience | None = None) -> DirectModel:
    """Connect to the model at an endpoint."""
    return DirectModel(endpoint, Google(), prices, clock, patience)
