"""What goes over the wire for one attempt: one request, and a stream in which no line is out of place.

A client library that sent a second request behind our back would spend money that no event knows of, so the
second one is refused before it leaves (S13). Lines that are no server-sent events are errors here: libraries
skip them, and an answer without its middle could look whole.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx2

from holdfast import __version__
from holdfast.facts.nesting import DEPTH_MAX
from holdfast.model.names import is_loopback
from holdfast.model.patience import Watch

_FIELD = re.compile(rb"(?::|(?:event|data|id|retry)(?::|$))")

_LONGEST_LINE = 64 * 1024 * 1024

PRUNED_FROM = 2 * DEPTH_MAX
"""Levels of nesting in one line that its library gets to see: the bound on arguments, and room for what is around."""


class SecondRequest(Exception):
    """A client library tried to ask twice within one attempt."""


class GarbledStream(Exception):
    """The stream holds something that is no server-sent event."""


class Wire:
    """The wire of one attempt. `status` is of the answer, 0 before it; `streaming` once its body is a stream."""

    def __init__(self, watch: Watch) -> None:
        self.requests = 0
        self.status = 0
        self.streaming = False
        self._watch = watch
        self._body: _Checked | None = None

    def client(self, base_url: str) -> httpx2.AsyncClient:
        """An HTTP client for this attempt alone: a connection that waits in a pool may be dead, and nobody
        here asks again because of that.
        """
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
        """Let go of the body, read to its end or not."""
        if self._body is not None:
            await self._body.finish()


@cache
def trusted() -> ssl.SSLContext:
    """Whom we trust; reading the certificates takes longer than a local request."""
    return httpx2.create_ssl_context()


class _Checked(httpx2.AsyncByteStream):
    """A stream of events, looked at line by line on its way."""

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
        """Close the iterator below too, in order: left to the collector it would be closed at any time."""
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()
        await self._inner.aclose()


class Lines:
    """Whole lines of an event stream, each checked and pruned, however the stream is cut into chunks."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> bytes:
        """The lines that the next bytes complete. Raises `GarbledStream`."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            _check_line(line.rstrip(b"\r"))
        if len(self._rest) > _LONGEST_LINE:
            raise GarbledStream("a line without an end")
        return b"".join(pruned(line) + b"\n" for line in whole)

    def end(self) -> None:
        """There is no more. Half a line says that the stream was cut."""
        if self._rest.strip():
            raise GarbledStream("the stream ended in the middle of a line")


def _check_line(line: bytes) -> None:
    if line and not _FIELD.match(line.removeprefix(b"\xef\xbb\xbf")):
        raise GarbledStream(f"a line that is no event: {line[:40]!r}")


_OPENING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]')


def pruned(line: bytes) -> bytes:
    """A line with every array or object of more than `PRUNED_FROM` levels cut to an empty one.

    A provider that sends the arguments of a call as an object, not as text, has its library decode them, which dies
    of what is nested too deep. What is left of them is still too deep, so the call is answered as malformed.
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
