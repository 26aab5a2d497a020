"""Connections of the server: how long they stay open, and when the kernel sends what was written."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import uvicorn

from holdfast.serve import server
from tests.support.waiting import PATIENCE_S


async def _ok(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def _answering() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server that answers everything with "ok"."""
    config = uvicorn.Config(
        _ok, http=server._Connection, ws="none", lifespan="off", log_config=None, timeout_keep_alive=1
    )
    running = server._Server(config)
    listening = server.listen("127.0.0.1", 0)
    async with anyio.create_task_group() as group:
        group.start_soon(running.serve, [listening])
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        yield reader, writer
        writer.close()
        running.should_exit = True


REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"


async def test_a_connection_that_is_used_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for headers does not run between requests, nor over several of them."""
    monkeypatch.setattr(server, "HEADERS_S", 0.2)
    async with _answering() as (reader, writer):
        began_s = time.monotonic()
        while time.monotonic() - began_s < 5 * server.HEADERS_S:
            writer.write(REQUEST + b"body")
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n", REQUEST, REQUEST + b"bod"])
@pytest.mark.parametrize("before", [0, 1])
async def test_headers_and_bodies_must_arrive_in_time(
    before: int, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where other requests of the connection came before, and where the response did not wait for the body."""
    monkeypatch.setattr(server, "HEADERS_S", 0.2)
    async with _answering() as (reader, writer):
        writer.write((REQUEST + b"body") * before + sent)
        with anyio.fail_after(PATIENCE_S):
            assert (await reader.read()).count(b"ok") == before + (b"\r\n\r\n" in sent)


async def test_the_rest_of_a_response_waits_for_no_acknowledgement() -> None:
    """Without TCP_NODELAY the kernel holds it back for 40 ms: each page took that much longer."""
    found = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = server.listen("127.0.0.1", 0)
    async with await asyncio.start_server(answer, sock=listening):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        await reader.read()
        writer.close()
    assert found
    assert all(found)
