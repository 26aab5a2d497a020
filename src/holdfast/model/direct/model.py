"""A model that is asked over HTTP: one attempt, one request, our own limits, our own errors."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Protocol, cast

import anyio
import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.clock import Clock
from holdfast.facts.base import Usage
from holdfast.model.base import ModelRequest, StreamPart
from holdfast.model.bounds import most_input_tokens
from holdfast.model.direct.errors import translate
from holdfast.model.direct.messages import Origin, conversation, tools
from holdfast.model.direct.parts import Reader
from holdfast.model.direct.wire import Wire
from holdfast.model.names import Endpoint
from holdfast.model.patience import Patience, Watch
from holdfast.model.prices import PriceList


class Family(Protocol):
    """What differs between providers."""

    signs: bool
    """Whether it takes no reasoning back that it did not sign."""

    marks_cache: bool
    """Whether it wants to be told what to cache."""

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """The library's model, with its own retries off, on that client."""
        ...

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Settings beside the response limit: reasoning, caching."""
        ...


class DirectModel:
    """A model of one of the families. It holds no connection between requests."""

    def __init__(
        self, endpoint: Endpoint, family: Family, prices: PriceList, clock: Clock, patience: Patience | None = None
    ) -> None:
        self.name = str(endpoint.name)
        self._endpoint = endpoint
        self._family = family
        self._prices = prices
        self._clock = clock
        self._patience = patience or Patience()

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """The most that the request can cost: every byte of it a token, each at the dearest input price, and
        the whole response limit used (S15). None without a price.
        """
        return self._prices.worst(most_input_tokens(request), request.max_output_tokens)

    def cost_pico(self, usage: Usage) -> int | None:
        """What that usage costs in pico-dollars, None without a price."""
        return self._prices.cost(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Ask, and yield what comes. Raises `ModelError`. Closing the iterator closes the connection."""
        watch = Watch(self._patience, self._clock)
        wire = Wire(watch)
        try:
            async with AsyncExitStack() as stack:
                response = await self._open(request, wire, watch, stack)
                reader = Reader(self._endpoint.name.provider)
                events = aiter(response)
                while (event := await watch.within(anext(events, None))) is not None:
                    watch.answered()
                    for part in reader.read(event):
                        yield part
                for part in reader.finish(response, request.input_tokens_estimate):
                    yield part
        except Exception as error:
            raise translate(error, self._endpoint, wire, self._clock) from error

    async def _open(self, request: ModelRequest, wire: Wire, watch: Watch, stack: AsyncExitStack) -> StreamedResponse:
        client = wire.client(self._endpoint.base_url)
        stack.push_async_callback(_close, wire, client)
        model = self._family.model(self._endpoint, client)
        origin = Origin(self._endpoint.name.provider, model.system, self._endpoint.name.model, signs=self._family.signs)
        messages = conversation(request.system, request.messages, origin, mark_head=self._family.marks_cache)
        settings = {"max_tokens": request.max_output_tokens, **self._family.settings(request, model)}
        manager = model_request_stream(
            model,
            messages,
            model_settings=cast(ModelSettings, settings),
            model_request_parameters=_parameters(request),
            instrument=False,
        )
        response = await watch.within(manager.__aenter__())
        stack.push_async_exit(manager)
        return response


async def _close(wire: Wire, client: httpx2.AsyncClient) -> None:
    """Also when this task is being cancelled: a connection that stays open goes on costing money."""
    with anyio.CancelScope(shield=True):
        with contextlib.suppress(Exception):  # what could not be closed is closed with the client
            await wire.close()
        await client.aclose()


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools(request.tools))
    wanted = OutputObjectDefinition(json_schema=request.output_schema, name="answer", strict=True)
    return ModelRequestParameters(function_tools=tools(request.tools), output_mode="native", output_object=wanted)
