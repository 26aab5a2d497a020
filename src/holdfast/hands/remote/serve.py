"""The queue over HTTP: the work routes of the Managed Agents protocol, and two of our own for requests to the hands.

    GET  /v1/environments/{e}/work/poll            key     an item with its secret, or null
    GET  /v1/environments/{e}/work/stats           key
    GET  /v1/environments/{e}/work/{w}             key
    POST /v1/environments/{e}/work/{w}/ack         key
    POST /v1/environments/{e}/work/{w}/heartbeat   token   412 if another worker holds the lease
    POST /v1/environments/{e}/work/{w}/stop        token   409 if it is stopped already
    GET  /v1/sessions/{s}/asks                     token   the requests to the hands, after `after`
    POST /v1/sessions/{s}/answers/{n}              token   400 if it is answered already

A key permits polling for work; a token belongs to one session and comes with its item. TLS is the deployer's task: this
end listens on loopback, and a proxy in front of it has the certificate.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import h11

from holdfast.clock import Clock
from holdfast.hands.remote.queue import RECLAIM_MS, Queue, Turned

BODY_MAX = 64 << 20
HOLD_MS = 20_000
"""Milliseconds that a poll for requests is held if there are none."""

IDLE_S = 120.0
_LOOK_S = 0.02
_WORK = re.compile(r"/v1/environments/([^/]+)/work(?:/([^/]+))?(?:/([a-z]+))?")
_ASKS = re.compile(r"/v1/sessions/([^/]+)/(asks|answers)(?:/(\d+))?")


class Request:
    """One parsed request."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        parts = urlsplit(target)
        self.method, self.path, self.body = method, parts.path, body
        self._query = parse_qs(parts.query)
        self.worker = headers.get("anthropic-worker-id", "")[:200]
        kind, _, secret = headers.get("authorization", "").partition(" ")
        self.secret = secret.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")

    def text(self, name: str, default: str = "") -> str:
        """Return a text parameter of the query."""
        return self._query.get(name, [default])[0]

    def number(self, name: str, least: int, most: int) -> int | None:
        """Return a number of the query, None if it is absent. Raises `Turned` with 400."""
        given = self._query.get(name)
        if given is None:
            return None
        if not given[0].isdecimal() or not least <= int(given[0]) <= most:
            raise Turned(400, f"{name} has to be a number from {least} to {most}")
        return int(given[0])


class Service:
    """Answers requests from a queue."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue, self._clock = queue, clock

    async def answer(self, request: Request) -> tuple[int, Any]:
        """Return the status and the JSON of the answer."""
        try:
            if found := _WORK.fullmatch(request.path):
                return 200, await self._work(request, *found.groups())
            if found := _ASKS.fullmatch(request.path):
                return 200, await self._asks(request, *found.groups())
            raise Turned(404, "there is nothing here")
        except Turned as turned:
            return turned.status, _error(turned)

    async def _work(self, request: Request, environment: str, work_id: str | None, verb: str | None) -> Any:
        if request.method == "POST" and verb in ("heartbeat", "stop") and work_id is not None:
            return self._held(request, environment, work_id, verb)
        if not self._queue.is_key(request.secret):
            raise Turned(401, "this key asks for no work here; `holdfast hands key NAME` makes one")
        match request.method, work_id, verb:
            case "GET", "poll", None:
                return await self._poll(request, environment)
            case "GET", "stats", None:
                return self._queue.stats()
            case "GET", str(), None:
                return {**self._queue.item(work_id), "environment_id": environment}
            case "POST", str(), "ack":
                return {**self._queue.acknowledge(work_id), "environment_id": environment}
            case _:
                raise Turned(404, "there is nothing here")

    def _held(self, request: Request, environment: str, work_id: str, verb: str) -> Any:
        if verb == "stop":
            return {**self._queue.stop(work_id, request.secret), "environment_id": environment}
        ttl_s = request.number("desired_ttl_seconds", 1, 86_400)
        expected = request.text("expected_last_heartbeat", "NO_HEARTBEAT")
        return self._queue.heartbeat(work_id, request.secret, expected, ttl_s)

    async def _poll(self, request: Request, environment: str) -> Any:
        block_ms = request.number("block_ms", 1, 999) or 0
        reclaim_ms = request.number("reclaim_older_than_ms", 0, 3_600_000)
        until = self._clock.monotonic_s() + block_ms / 1000
        while True:
            handed = self._queue.poll(request.worker, RECLAIM_MS if reclaim_ms is None else reclaim_ms)
            if handed is not None:
                secret = json.dumps({"sessions_token": handed.token}).encode()
                text = base64.urlsafe_b64encode(secret).decode().rstrip("=")
                return {**handed.item, "environment_id": environment, "secret": text}
            if self._clock.monotonic_s() >= until:
                return None
            await anyio.sleep(_LOOK_S)

    async def _asks(self, request: Request, session_id: str, what: str, number: str | None) -> Any:
        if request.method == "POST" and what == "answers" and number is not None:
            self._queue.answered(session_id, request.secret, int(number), request.body)
            return {"type": "answered"}
        if request.method != "GET" or what != "asks" or number is not None:
            raise Turned(404, "there is nothing here")
        after = request.number("after", 0, 1 << 62) or 0
        until = self._clock.monotonic_s() + (request.number("block_ms", 1, HOLD_MS) or 0) / 1000
        while True:
            found = self._queue.asked(session_id, request.secret, after)
            if found or self._clock.monotonic_s() >= until:
                return {"asks": [{"seq": seq, "ask": json.loads(body)} for seq, body in found]}
            await anyio.sleep(_LOOK_S)


def _error(turned: Turned) -> dict[str, Any]:
    kind = {401: "authentication_error", 404: "not_found_error"}.get(turned.status, "invalid_request_error")
    error: dict[str, Any] = {"type": kind, "message": str(turned)}
    if turned.code:
        error["details"] = {"error_code": turned.code, "current_state": turned.now}
    return {"type": "error", "error": error}


Handler = Callable[[Request], Awaitable[tuple[int, Any]]]


async def serve_connection(stream: anyio.abc.ByteStream, handle: Handler) -> None:
    """Serve one connection, request after request, until it ends or sends an invalid request."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=32_768)
    async with stream:
        try:
            with anyio.CancelScope() as scope:
                while True:
                    scope.deadline = anyio.current_time() + IDLE_S
                    request = await _request(connection, stream)
                    if request is None:
                        return
                    scope.deadline = float("inf")
                    status, value = await handle(request)
                    await _respond(connection, stream, status, value)
                    if connection.our_state is h11.MUST_CLOSE:
                        return
                    connection.start_next_cycle()
        except (h11.ProtocolError, anyio.BrokenResourceError, anyio.ClosedResourceError, UnicodeDecodeError):
            return


async def _event(connection: h11.Connection, stream: anyio.abc.ByteStream) -> Any:
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        try:
            connection.receive_data(await stream.receive(1 << 18))
        except anyio.EndOfStream:
            connection.receive_data(b"")


async def _request(connection: h11.Connection, stream: anyio.abc.ByteStream) -> Request | None:
    head = await _event(connection, stream)
    if not isinstance(head, h11.Request):
        return None
    body = bytearray()
    while not isinstance(event := await _event(connection, stream), h11.EndOfMessage):
        if not isinstance(event, h11.Data) or len(body) + len(event.data) > BODY_MAX:
            return None
        body += event.data
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode(), head.target.decode("ascii"), headers, bytes(body))


async def _respond(connection: h11.Connection, stream: anyio.abc.ByteStream, status: int, value: Any) -> None:
    body = json.dumps(value, separators=(",", ":")).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
        data = connection.send(event)
        if data:
            await stream.send(data)
