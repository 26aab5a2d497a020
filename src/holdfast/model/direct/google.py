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
from holdfast.model.direct.wire import trusted
from holdfast.model.names import Endpoint
from holdfast.model.patience import Patience
from holdfast.model.prices import PriceList

# A reason to finish that the library has not heard of is not worth a line on somebody's screen.
warnings.filterwarnings("ignore", message=".* is not a valid FinishReason", category=UserWarning)


class Google:
    """Signatures stand with the parts they sign, not with the reasoning. Google caches by itself."""

    signs = False
    marks_cache = False

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """The library's model."""
        options = HttpOptions(
            base_url=endpoint.base_url,
            httpx_async_client=client,
            # The client above has its own; without these, the library reads all certificates again, twice.
            async_client_args={"verify": trusted(), "ssl": trusted()},
            retry_options=HttpRetryOptions(attempts=1),
        )
        sdk = Client(vertexai=False, api_key=endpoint.key, http_options=options)
        return GoogleModel(endpoint.name.model, provider=GoogleProvider(client=sdk))

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """How much to reason."""
        if not request.thinking:
            return {}
        return {"thinking": False if request.thinking == "off" else request.thinking}


def connect(endpoint: Endpoint, prices: PriceList, clock: Clock, patience: Patience | None = None) -> DirectModel:
    """The model at that endpoint."""
    return DirectModel(endpoint, Google(), prices, clock, patience)
