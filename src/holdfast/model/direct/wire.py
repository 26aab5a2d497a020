"""The wire of one attempt: exactly one request, a validated event stream, and time limits.

A second request by a client library would spend money without an event, so it is refused before it is sent (S13).
Lines that are not server-sent events are errors: libraries skip them, so a damaged answer could look whole.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable
from functools import cache
from typing import TypeVar

import anyio
import httpx2
import msgspec

from holdfast import __version__
from holdfast.clock import Clock
from holdfast.errors import ModelError
from holdfast.facts.bounded_json import DEPTH_MAX
from holdfast.model.names import is_loopback

_FIELD = re.compile(rb"(?::|(?:event|data|id|retry)(?::|$))")

_LONGEST_LINE = 64 * 1024 * 1024

PRUNED_FROM = 2 * DEPTH_MAX
"""Levels of nesting in one line that the library sees: the bound on arguments, plus room for the enclosing levels."""


class SecondRequest(Exception):
    """A client library tried to send a second request in one attempt."""


class GarbledStream(Exception):
    """The stream contains a line that is not a server-sent event."""


class Wire:
    """The wire of one attempt. `status` is the HTTP status, 0 at first; `streaming` is set if the body is a stream."""

    def __init__(self, watch: Watch) -> None:
        self.requests = 0
        self.status = 0
        self.streaming = False
        self._watch = watch
        self._body: _Checked | None = None

    def client(self, base_url: str) -> httpx2.AsyncClient:
        """Return an HTTP client for this attempt only: a pooled connection may be dead, and there is no retry here."""
        return httpx2.AsyncClient(
            headers={"User-Agent": f"holdfast/{__version__}", "Accept-Encoding": "identity"},
            event_hooks={"request": [self._on_request], "response": [self._on_response]},
            trust_env=not is_loopback(base_url),
            verify=trusted(),
        )

    async def _on_request(self, request: httpx2.Request) -> None:
        self.requests += 1
        if self.requests > 1:
            raise SecondRequest(f"a second request to {request.url.host} in one attempt was refused")
        limits = {"connect": self._watch.patience.connect_s, "read": None, "write": None, "pool": None}
        request.extensions = {**request.extensions, "timeout": limits}

    async def _on_response(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        kind = response.headers.get("content-type", "")
        plain = response.headers.get("content-encoding", "identity") == "identity"
        if response.status_code == 200 and plain and kind.startswith("text/event-stream"):
            self.streaming = True
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = self._body = _Checked(response.stream, self._watch)

    async def close(self) -> None:
        """Close the body, even if it was not read to its end."""
        if self._body is not None:
            await self._body.finish()


@cache
def trusted() -> ssl.SSLContext:
    """Return the trusted certificates, cached because reading them takes longer than a local request."""
    return httpx2.create_ssl_context()


class _Checked(httpx2.AsyncByteStream):
    """A stream of events, validated line by line."""

    def __init__(self, inner: httpx2.AsyncByteStream, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch
        self._chunks: AsyncIterator[bytes] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines = Lines()
        self._chunks = aiter(self._inner)
        async for chunk in self._chunks:
            self._watch.alive()
            if whole := lines.take(chunk):
                yield whole
        lines.end()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def finish(self) -> None:
        """Close the inner iterator now, in order, instead of leaving it to the garbage collector."""
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()
        await self._inner.aclose()


class Lines:
    """The complete lines of an event stream, validated and pruned, independent of chunk boundaries."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> bytes:
        """Take the next bytes; return the lines they complete. Raises `GarbledStream`."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            text = line.rstrip(b"\r")
            if text and not _FIELD.match(text.removeprefix(b"\xef\xbb\xbf")):
                raise GarbledStream(f"a line that is not an event: {text[:40]!r}")
        if len(self._rest) > _LONGEST_LINE:
            raise GarbledStream("a line without an end")
        return b"".join(pruned(line) + b"\n" for line in whole)

    def end(self) -> None:
        """End the stream. Raises `GarbledStream` for an incomplete line."""
        if self._rest.strip():
            raise GarbledStream("the stream ended within a line")


_OPENING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]')


def pruned(line: bytes) -> bytes:
    """Return a line with every array or object of more than `PRUNED_FROM` levels replaced by an empty one.

    If a provider sends a call's arguments as an object, its library decodes them and fails on deep nesting. The pruned
    arguments still exceed Holdfast's bound, so the call is answered as malformed.
    """
    if line.count(b"[") + line.count(b"{") <= PRUNED_FROM:
        return line
    depth, kept, out = 0, 0, []
    for found in _OPENING.finditer(line):
        token = found[0]
        if token in b"[{":
            depth += 1
            if depth == PRUNED_FROM + 1:
                out.append(line[kept : found.end()])
        elif token in b"]}":
            if depth == PRUNED_FROM + 1:
                kept = found.start()
            depth -= 1
    return b"".join((*out, line[kept:])) if depth == 0 else line


T = TypeVar("T")


class Patience(msgspec.Struct, frozen=True):
    """Time limits in seconds: `connect_s` to connect, `first_s` from the start to the first part of an answer,
    `between_s` of silence after that. A reasoning model may be silent for minutes.
    """

    connect_s: float = 10.0
    first_s: float = 600.0
    between_s: float = 300.0


class Watch:
    """The time limits of one answer. Any bytes on the wire count as a sign of life."""

    def __init__(self, patience: Patience, clock: Clock) -> None:
        self.patience = patience
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._alive_s = self._began_s
        self._answered = False

    def alive(self) -> None:
        """Record that bytes arrived."""
        self._alive_s = self._clock.monotonic_s()

    def answered(self) -> None:
        """Record a part of the answer; from now on, the limit on silence applies."""
        self._answered = True
        self.alive()

    def _left_s(self) -> float:
        if self._answered:
            return self._alive_s + self.patience.between_s - self._clock.monotonic_s()
        return self._began_s + self.patience.first_s - self._clock.monotonic_s()

    async def within(self, work: Awaitable[T]) -> T:
        """Await `work`. If it takes too long, cancel it and raise `ModelError` of kind `timeout`."""
        results: list[T] = []
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._expire, group.cancel_scope)
            try:
                results.append(await work)
            except Exception as raised:
                error = raised
            group.cancel_scope.cancel()
        if results:
            return results[0]
        late = f"the provider did not begin to answer within {self.patience.first_s:g} s"
        if self._answered:
            late = f"the provider was silent for {self.patience.between_s:g} s during its answer"
        try:
            raise error or ModelError("timeout", late)
        finally:
            error = None  # break the reference cycle of traceback and frame

    async def _expire(self, scope: anyio.CancelScope) -> None:
        while (left_s := self._left_s()) > 0:
            await self._clock.sleep(left_s)
        scope.cancel()
