"""Streams of bytes: the last answer arrives, whatever the peer still has to say."""

from __future__ import annotations

import socket
import ssl

import anyio
import pytest
from anyio import to_thread

from holdfast.clock import SystemClock
from holdfast.egress.certificates import Authority
from holdfast.egress.streams import Stream
from holdfast.ids import system_entropy

SENT = bytes(1_000_000)
"""More than both sides buffer: the peer is still sending when the answer comes."""


def send_all_then_listen(sock: socket.socket) -> bytes:
    """What a plain client does. It hears the answer after it has sent everything."""
    heard = b""
    with sock:
        sock.sendall(SENT)
        while data := sock.recv(1000):
            heard += data
    return heard


@pytest.mark.parametrize("secure", [True, False])
async def test_an_answer_in_the_middle_of_a_request_arrives(secure: bool) -> None:
    authority = Authority(SystemClock(), system_entropy)
    ours, theirs = socket.socketpair()
    heard = b""

    def client() -> None:
        nonlocal heard
        trusting = ssl.create_default_context(cadata=authority.pem().decode())
        heard = send_all_then_listen(trusting.wrap_socket(theirs, server_hostname="a.test") if secure else theirs)

    stream = Stream(ours)
    async with anyio.create_task_group() as group:
        group.start_soon(to_thread.run_sync, client)
        if secure:
            await stream.start_tls(authority.context("a.test"), server=True)
        assert await stream.recv(1000)
        await stream.send(b"no")
        await stream.linger()
        stream.close()
    assert heard == b"no"
