"""Requests that are put together at random: one that gets through is one request to the server, and carries no more."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
from pathlib import Path

import anyio
import pytest

from holdfast.egress.base import Gateway
from holdfast.testing.egress import SECRETS, variable_of
from tests.egress.rigs import VALUES, ProxyRig, proxy_rig, tunnel
from tests.egress.scene import ONE, SECRET, SES

LINES = (
    "Host: one.test", "Host: two.test", "Host: one.test:443", "host : one.test", "Content-Length: 0",
    "Content-Length: 5",
    "Content-Length: 43", "Content-Length: 5, 5", "Content-Length: -1", "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: x", "Transfer-Encoding:\tchunked",
    "Expect: 100-continue",
    "Connection: keep-alive", "Connection: close", "Connection: content-length", "Connection: te", "TE: trailers",
    "Trailer: X", " folded", "X: a\rb", "X: a\nContent-Length: 5", "X: \x00", "X:", ":", "", "Upgrade: h2c",
    "Authorization: Bearer {key}", "Authorization: Basic {key}", "Authorization: bearer  {key}", "X-Key: {key}",
    "Range: bytes=0-1", "Accept-Encoding: gzip", "Proxy-Authorization: {key}", "Cookie: {key}",
)  # fmt: skip
STARTS = (
    "GET {path} HTTP/1.1", "POST {path} HTTP/1.1", "POST {path} HTTP/1.0", "HEAD {path} HTTP/1.1",
    "get {path} HTTP/1.1",
    "GET  {path} HTTP/1.1", "GET {path}", "GET https://two.test{path} HTTP/1.1", "GET {path}?{key} HTTP/1.1",
    "POST {path} HTTP/1.1 ", "CONNECT two.test:443 HTTP/1.1", "OPTIONS * HTTP/1.1", "\r\nGET {path} HTTP/1.1",
)  # fmt: skip
BODIES = (
    "", "hello", "0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n", "5\nhello\n0\n\n",
    "{key}",
    "GET /smuggled HTTP/1.1\r\nHost: one.test\r\n\r\n", "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: two.test\r\n\r\n",
    "2b\r\nGET /smuggled HTTP/1.1\r\nHost: one.test\r\n\r\n\r\n0\r\n\r\n", "ffffffffffffffff1\r\nx",
)  # fmt: skip
ENDS = ("\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r\r\n")


def made_up(seed: int, key: str) -> bytes:
    """A request, or something like it."""
    dice = random.Random(seed)
    start = dice.choice(STARTS[:4]) if dice.random() < 0.7 else dice.choice(STARTS)
    lines = [start, *(["Host: one.test"] if dice.random() < 0.8 else []), *dice.choices(LINES, k=dice.randrange(5))]
    text = "".join(line + dice.choice(ENDS) for line in lines) + "\r\n" + dice.choice(BODIES)
    return text.replace("{path}", f"/f{seed}").replace("{key}", key).encode("latin-1")


def exchange(gateway: Gateway, data: bytes) -> bytes:
    """What comes back when that is said in a tunnel, until the proxy ends it or has nothing more to say."""
    sock, status = tunnel(Path(gateway.socket), ONE.host, 443)
    assert b" 200 " in status
    context = ssl.create_default_context(cafile=str(Path(gateway.socket).with_name("ca.pem")))
    said = b""
    with contextlib.suppress(OSError), context.wrap_socket(sock, server_hostname=ONE.host) as secure:
        secure.sendall(data)
        secure.unwrap().shutdown(socket.SHUT_WR)
    with contextlib.suppress(OSError):
        sock.close()
    return said


def work(rig: ProxyRig, gateway: Gateway, first: int, count: int) -> None:
    """Say so many, and look at all that arrived."""
    key = gateway.env[variable_of(SECRETS[0])]
    for seed in range(first, first + count):
        exchange(gateway, made_up(seed, key))
    for seen in rig.world.seen:
        seed = int(seen.path.removeprefix("/f").partition("?")[0]) if seen.path.startswith("/f") else -1
        assert seen.server == ONE.host, seen
        if seed < 0:  # a second request in the same bytes, which is one of its own: it was judged like any other
            assert seen.path == "/smuggled", seen
            assert seen.headers.get("authorization") is None, seen
        assert key not in str(seen), seen
        carried = [name for name, value in seen.headers.items() if VALUES[0] in value]
        assert carried in ([], ["authorization"]), seen
        assert not ("transfer-encoding" in seen.headers and "content-length" in seen.headers), seen


async def fuzz(folder: Path, first: int, count: int) -> int:
    """Returns how many got through."""
    async with proxy_rig(folder) as rig:
        gateway = await rig.egress.open(SES, SECRET, uid=os.getuid())
        await anyio.to_thread.run_sync(work, rig, gateway, first, count)
        assert (rig.folder / SES / "log").read_text() == ""
        return len(rig.world.seen)


async def test_at_random(tmp_path: Path) -> None:
    assert await fuzz(tmp_path, 1, 200) > 10


@pytest.mark.faults
async def test_at_random_for_long(tmp_path: Path) -> None:
    assert await fuzz(tmp_path, 1_000, 3_000) > 200
