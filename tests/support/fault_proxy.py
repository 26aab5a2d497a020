"""A small TCP proxy in front of a model server that records requests and injects faults into responses.

Each connection carries one request. The response is read completely from the server first, so that the faulty one is
cut into the same bytes on every machine, under any load.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from anyio.abc import SocketAttribute, SocketStream

LONG_S = 60.0
"""Longer than the wait of any test, in seconds."""


@dataclass
class Fault:
    """What happens to one answer. Positions are bytes of its body.

    `stall_at`: nothing more comes from there on, -1 for not even a status line. `cut_at`: the connection is
    closed there without the end that was promised. `end_at`: a proper end, too early. `garbage_at`: noise in
    place of the rest. `replay` is answered without asking the server. `pieces` cuts a body into what is sent
    at one time, one every `pause_s`. `rewrite` makes another body of it. `headers` take the place of the answer's.
    """

    stall_at: int | None = None
    cut_at: int | None = None
    end_at: int | None = None
    garbage_at: int | None = None
    refuse: bool = False
    replay: Answer | None = None
    pieces: Callable[[bytes], list[bytes]] | None = None
    pause_s: float = 0.0
    rewrite: Callable[[bytes], bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)


WHOLE = Fault()

Ending = Literal["cut_at", "end_at", "garbage_at"]


def ending(how: Ending, at: int) -> Fault:
    """An answer that ends there, in one of the three ways."""
    return Fault(
        cut_at=at if how == "cut_at" else None,
        end_at=at if how == "end_at" else None,
        garbage_at=at if how == "garbage_at" else None,
    )


GARBAGE = b"\x00\xff\x1b<html>502 Bad Gateway</html>\n\n\xfe\n"


@dataclass
class Exchange:
    """One request, as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The request's body."""
        return json.loads(self.body)


@dataclass
class Answer:
    """One answer of the server."""

    head: list[str]
    body: bytes


class FaultProxy:
    """A proxy that runs. `faults` are used up one by one; without one left, answers go through whole.

    `stalling` counts the connections on which it says nothing and the other side still waits.
    """

    def __init__(self, upstream: int) -> None:
        self.port = 0
        self.faults: list[Fault] = []
        self.seen: list[Exchange] = []
        self.answers: list[Answer] = []
        self.stalling = 0
        self._upstream = upstream

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, client: SocketStream) -> None:
        """One connection."""
        async with client:
            try:
                head, body = await _message(client, wait_for_end=False)
                request = _exchange(head, body)
                self.seen.append(request)
                fault = self.faults.pop(0) if self.faults else WHOLE
                if fault.refuse:
                    return
                answer = fault.replay or await self._forward(head, body)
                if fault.replay is None:
                    self.answers.append(answer)
                await self._send(client, answer, fault)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return

    async def _forward(self, head: list[str], body: bytes) -> Answer:
        lines = [line for line in head if not line.lower().startswith(("connection:", "transfer-encoding:"))]
        async with await anyio.connect_tcp("127.0.0.1", self._upstream) as server:
            await server.send("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1") + body)
            answered, content = await _message(server, wait_for_end=True)
        return Answer(answered, content)

    async def _send(self, client: SocketStream, answer: Answer, fault: Fault) -> None:
        if fault.stall_at == -1:
            await self._stall(client)
            return
        body = fault.rewrite(answer.body) if fault.rewrite else answer.body
        replaced = tuple(f"{name.lower()}:" for name in fault.headers)
        kept = [line for line in answer.head if not line.lower().startswith((*_OURS, *replaced))]
        added = [f"{name}: {value}" for name, value in fault.headers.items()]
        head = [*kept, *added, "Transfer-Encoding: chunked", "Connection: close", "", ""]
        await client.send("\r\n".join(head).encode("latin-1"))
        ends = [at for at in (fault.stall_at, fault.cut_at, fault.end_at, fault.garbage_at) if at is not None]
        body = body[: min(ends, default=len(body))]
        if fault.garbage_at is not None:
            body += GARBAGE
        for piece in fault.pieces(body) if fault.pieces else [body]:
            if piece:
                await anyio.sleep(fault.pause_s)
                await client.send(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if fault.stall_at is not None:
            await self._stall(client)
        elif fault.cut_at is None:
            await client.send(b"0\r\n\r\n")

    async def _stall(self, client: SocketStream) -> None:
        """Say nothing until the other side has had enough."""
        self.stalling += 1
        try:
            with anyio.move_on_after(LONG_S):
                while True:
                    await client.receive()
        finally:
            self.stalling -= 1


def _exchange(head: list[str], body: bytes) -> Exchange:
    method, path, _ = head[0].split(" ", 2)
    return Exchange(method, path, _headers(head), body)


def _headers(head: list[str]) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in head[1:])
    return {name.strip().lower(): value.strip() for name, value in pairs}


async def _message(stream: SocketStream, *, wait_for_end: bool) -> tuple[list[str], bytes]:
    """The head's lines and the whole body of a request or an answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    raw, data = data.split(b"\r\n\r\n", 1)
    head = raw.decode("latin-1").split("\r\n")
    headers = _headers(head)
    if "content-length" in headers:
        while len(data) < int(headers["content-length"]):
            data += await stream.receive()
    elif wait_for_end or "transfer-encoding" in headers:
        while not (headers.get("transfer-encoding") == "chunked" and data.endswith(b"0\r\n\r\n")):
            try:
                data += await stream.receive()
            except anyio.EndOfStream:
                break
    return head, _joined(data) if headers.get("transfer-encoding") == "chunked" else data


def _joined(data: bytes) -> bytes:
    """A chunked body without its chunks."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            break
    return body


_OURS = ("transfer-encoding:", "content-length:", "connection:", "keep-alive:")


@asynccontextmanager
async def fault_proxy(upstream: int) -> AsyncIterator[FaultProxy]:
    """A proxy before that port of loopback."""
    proxy = FaultProxy(upstream)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    proxy.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, proxy.serve)
        yield proxy
        group.cancel_scope.cancel()
