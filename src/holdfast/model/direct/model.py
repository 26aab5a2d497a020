"""A model behind an HTTP API: one request per attempt, with Holdfast's limits and errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx2
from pydantic_ai import exceptions as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.clock import Clock
from holdfast.errors import ModelError, ModelErrorKind
from holdfast.facts.base import Usage
from holdfast.model.base import ModelRequest, StreamPart, most_input_tokens
from holdfast.model.direct.conversion import Origin, Reader, conversation, tools
from holdfast.model.direct.wire import GarbledStream, Patience, SecondRequest, Watch, Wire
from holdfast.model.names import Endpoint, is_loopback
from holdfast.model.prices import PriceList


class Family(Protocol):
    """The differences between providers."""

    signs: bool
    """True if the provider accepts only reasoning that it signed."""

    marks_cache: bool
    """True if requests must mark the parts to cache."""

    def model(self, endpoint: Endpoint, client: httpx2.AsyncClient) -> TheirModel:
        """Build the pydantic-ai model on that client, without retries."""
        ...

    def settings(self, request: ModelRequest, model: TheirModel) -> dict[str, Any]:
        """Request settings beside the response limit: reasoning and caching."""
        ...


class DirectModel:
    """A model of one family. It keeps no connection between requests."""

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
        """Return the largest possible cost (S15): each byte a token at the highest input rate, plus the response limit.

        None without a price.
        """
        return self._prices.worst(most_input_tokens(request), request.max_output_tokens)

    def cost_pico(self, usage: Usage) -> int | None:
        """Return the cost of a usage in pico-dollars, None without a price."""
        return self._prices.cost(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Send a request and yield its parts. Raises `ModelError`. Closing the iterator closes the connection."""
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
        parameters = ModelRequestParameters(function_tools=tools(request.tools))
        if request.output_schema is not None:
            wanted = OutputObjectDefinition(json_schema=request.output_schema, name="answer", strict=True)
            parameters = replace(parameters, output_mode="native", output_object=wanted)
        manager = model_request_stream(
            model,
            messages,
            model_settings=cast(ModelSettings, settings),
            model_request_parameters=parameters,
            instrument=False,
        )
        response = await watch.within(manager.__aenter__())
        stack.push_async_exit(manager)
        return response


async def _close(wire: Wire, client: httpx2.AsyncClient) -> None:
    """Close the connection even when cancelled: an open one continues to cost money."""
    with anyio.CancelScope(shield=True):
        with contextlib.suppress(Exception):  # the client closes the rest
            await wire.close()
        await client.aclose()


_LONGEST_S = 31 * 86_400.0
"""Longest wait accepted from a provider, in seconds."""

_SAID = 300
"""Number of characters of a provider's message that are logged."""


def translate(error: Exception, endpoint: Endpoint, wire: Wire, clock: Clock) -> ModelError:
    """Translate a library's error, quoting the provider's message without the key."""
    if isinstance(error, ModelError):
        return error
    headers = getattr(error, "headers", None) or {}
    kind, sentence = _judged(error, endpoint, wire)
    said = "" if kind == "auth" else _said(error, endpoint.key)
    message = f"{sentence}: {said}" if said else sentence
    wait_s = (
        _retry_after_s(error, headers, clock)
        if kind in ("rate_limited", "overloaded", "unavailable", "quota")
        else None
    )
    return ModelError(kind, message, retry_after_s=wait_s)


def _judged(error: Exception, endpoint: Endpoint, wire: Wire) -> tuple[ModelErrorKind, str]:
    who, model = endpoint.name.provider, endpoint.name.model
    match error:
        case theirs.ModelAuthenticationError():
            return "auth", (
                f"{who} did not accept the key: set {endpoint.key_variable} to a valid one that may use {model}, "
                "then wake the session"
            )
        case theirs.ModelNotFoundError():
            near = getattr(error, "suggested_model_id", None)
            meant = f"did you mean {near.rpartition(':')[2]}?" if near else "check the name after the colon"
            return "unknown_model", f"{who} has no model {model!r} at {endpoint.base_url}; {meant}"
        case theirs.ModelContextWindowExceededError():
            return "context_too_long", f"the context is too long for {model}"
        case theirs.ModelQuotaExceededError():
            return "quota", f"the account at {who} has no credit left: add credit there, or raise its limit"
        case theirs.ModelRateLimitError():
            return "rate_limited", f"{who} limits the request rate"
        case theirs.ModelOverloadedError():
            return "overloaded", f"{who} is overloaded"
        case theirs.ModelHTTPError(status_code=code):
            return _of_status(code, who)
        case theirs.ModelRequestRejectedError():
            return "invalid_request", f"{who} refused the request"
        case theirs.ModelUnavailableError() | theirs.ModelServerError():
            return "unavailable", f"{who} is not available"
        case theirs.ModelConnectionError(phase=phase):
            return _of_connection(phase, error, endpoint, wire)
        case theirs.UserError():
            return "invalid_request", f"the request cannot be made of {who}"
    return _unexpected(error, who, wire)


def _of_status(code: int, who: str) -> tuple[ModelErrorKind, str]:
    if code in (503, 529):
        return "overloaded", f"{who} is overloaded ({code})"
    if code == 413:
        return "context_too_long", f"the request is larger than {who} takes"
    if code in (408, 504):
        return "timeout", f"{who} gave up waiting ({code})"
    if code == 409 or code >= 500:
        return "unavailable", f"{who} is not available ({code})"
    return "invalid_request", f"{who} refused the request ({code})"


def _of_connection(phase: str | None, error: Exception, endpoint: Endpoint, wire: Wire) -> tuple[ModelErrorKind, str]:
    if _inside(error, SecondRequest) or _inside(error, GarbledStream):
        return _unexpected(error, endpoint.name.provider, wire)
    if phase == "connect" or not wire.requests:
        return "unavailable", f"cannot connect to {endpoint.base_url}{proxy_hint(endpoint.base_url)}"
    if isinstance(error, theirs.ModelTimeoutError):
        return "timeout", f"{endpoint.name.provider} took too long"
    if not wire.status:
        return "unavailable", f"{endpoint.base_url} closed the connection without an answer"
    return "bad_stream", "the connection broke during the answer"


def proxy_hint(base_url: str) -> str:
    """The end of a message about a failed connection: names the proxy in use, if any, without its password."""
    url = urlsplit(base_url)
    proxies = getproxies()
    name = url.scheme if url.scheme in proxies else "all"
    if name not in proxies or is_loopback(base_url) or proxy_bypass(url.netloc):
        return "; check that the server is running"
    proxy = urlsplit(proxies[name])
    return (
        f" through {name.upper()}_PROXY={proxy.scheme}://{proxy.netloc.rpartition('@')[2]}; check that this proxy is "
        "running, or unset the variable"
    )


def _unexpected(error: Exception, who: str, wire: Wire) -> tuple[ModelErrorKind, str]:
    """Translate any other library error as an invalid answer."""
    if _inside(error, SecondRequest) and 400 <= wire.status < 500:
        return "invalid_request", f"{who} refused the request ({wire.status})"
    if not wire.requests:
        return "invalid_request", f"the request cannot be made of {who} ({type(error).__name__})"
    return "bad_stream", f"the answer of {who} cannot be read ({type(error).__name__})"


def _inside(error: BaseException | None, kind: type[Exception]) -> bool:
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, kind):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def _said(error: Exception, key: str) -> str:
    body = getattr(error, "body", None)
    text = _message(body) or ("" if isinstance(error, theirs.ModelHTTPError) else str(error))
    if key:
        text = text.replace(key, "…")
    text = " ".join(text.split())
    return text if len(text) <= _SAID else f"{text[:_SAID]}…"


def _message(body: object) -> str:
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            inner = inner.get("message", "")
        return inner if isinstance(inner, str) else ""
    return body if isinstance(body, str) else ""


def _retry_after_s(error: Exception, headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return the wait that the provider requests: an explicit time first, then the reset times of its limits."""
    named = headers.get("retry-after")
    given = getattr(error, "retry_after", None)
    ways = (
        _number(headers.get("retry-after-ms"), 0.001),
        _number(named, 1.0),
        _date(named, clock),
        max(0.0, float(given)) if isinstance(given, int | float) else None,
        _resets(headers, clock),
    )
    return next((min(wait_s, _LONGEST_S) for wait_s in ways if wait_s is not None), None)


def _number(text: str | None, unit_s: float) -> float | None:
    if text is None or not re.fullmatch(r"\d{1,12}(\.\d+)?", text.strip()):
        return None
    return float(text) * unit_s


def _date(text: str | None, clock: Clock) -> float | None:
    """Return the seconds until an HTTP date or an RFC 3339 time; 0 if it is past."""
    if not text or (text.strip()[:1].isdecimal() and "-" not in text):
        return None
    try:
        at = parsedate_to_datetime(text) if "," in text else datetime.fromisoformat(text)
    except (ValueError, TypeError, IndexError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, at.timestamp() - clock.now_us() / 1_000_000)


_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def _duration(text: str) -> float | None:
    """Parse the seconds of a duration such as `1m30.5s` or `200ms`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    units = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
    return sum(float(number or 0) * unit for number, unit in zip(match.groups(), units, strict=True))


def _resets(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return the latest reset among exhausted limits (`anthropic-ratelimit-*`, `x-ratelimit-*`)."""
    waits = []
    for name, left in headers.items():
        limit = re.fullmatch(r"(anthropic-ratelimit-.+)-remaining|(x-ratelimit)-remaining(-.+)?", name)
        if limit is None or _number(left, 1.0) != 0.0:
            continue
        reset = f"{limit[1]}-reset" if limit[1] else f"{limit[2]}-reset{limit[3] or ''}"
        text = headers.get(reset, "")
        wait_s = _duration(text)
        if wait_s is None:
            wait_s = _date(text, clock)
        if wait_s is not None:
            waits.append(wait_s)
    return max(waits, default=None)
