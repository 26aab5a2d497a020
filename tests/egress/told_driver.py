"""Hosts that tell what they know of a secret, in every way, to a client behind a real proxy: nothing may arrive.

Run by `test_told` as the tests' user, and as an ordinary one.
"""

from __future__ import annotations

import base64
import bz2
import contextlib
import gzip
import html
import json
import lzma
import os
import queue
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.egress.base import Gateway
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from holdfast.testing.egress import part
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source
from tests.egress.rigs import tunnel
from tests.egress.upstream import World

SES = "ses_told"
VALUE = "tok_51HxYz/AB+CDefgh-2"
HOSTS = ("one.test", "two.test")


def _lines(text: bytes, width: int, end: bytes) -> bytes:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


def _each(pattern: str) -> Callable[[bytes], bytes]:
    return lambda data: "".join(pattern.format(byte) for byte in data).encode()


TELLS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": bytes,
    "base64": base64.b64encode,
    "base64 in lines": lambda data: _lines(base64.b64encode(b"xy" + data), 8, b"\n"),
    "base64 in CRLF lines": lambda data: _lines(base64.b64encode(b"x" + data), 12, b"\r\n"),
    "base64 in JSON lines": lambda data: json.dumps(_lines(base64.b64encode(data), 8, b"\n").decode()).encode(),
    "base64 in a URL": lambda data: base64.b64encode(data).replace(b"+", b"%2B").replace(b"/", b"%2F"),
    "base64 with escaped slashes": lambda data: base64.b64encode(b"?" + data).replace(b"/", b"\\/"),
    "base64 of the other alphabet": lambda data: base64.urlsafe_b64encode(b"ab" + data),
    "base32": base64.b32encode,
    "base32 in small letters": lambda data: base64.b32encode(b"abc" + data).lower(),
    "hex": lambda data: data.hex().encode(),
    "hex with blanks": lambda data: data.hex(" ").encode(),
    "hex with colons": lambda data: data.hex(":").upper().encode(),
    "hex with dashes": lambda data: data.hex("-").upper().encode(),
    "percent": _each("%{:02x}"),
    "percent twice": _each("%25{:02X}"),
    "percent three times": _each("%2525{:02X}"),
    "backslash x": _each("\\x{:02x}"),
    "backslash u": _each("\\u{:04X}"),
    "backslash u in JSON in JSON": _each("\\\\u{:04x}"),
    "backslash u with braces": _each("\\u{{{:x}}}"),
    "octal": _each("\\{:03o}"),
    "entities": _each("&#{};"),
    "entities in hex": _each("&#x{:X};"),
    "entities with zeros": _each("&#0{:03};"),
    "entities escaped again": _each("&amp;#{};"),
    "named entities": lambda data: data.replace(b"/", b"&sol;").replace(b"_", b"&lowbar;").replace(b"+", b"&plus;"),
    "HTML": lambda data: html.escape(data.decode()).encode(),
    "UTF-16": lambda data: data.decode().encode("utf-16-le"),
    "UTF-16, big end first": lambda data: data.decode().encode("utf-16-be"),
    "gzip": lambda data: gzip.compress(b"noise " * 9 + data),
    "two gzip files": lambda data: gzip.compress(b"a") + gzip.compress(data),
    "zlib": zlib.compress,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: b"\x28\xb5\x2f\xfd\x20" + bytes([len(data)]) + b"\x01\x00\x00" + data,
}
"""What a bound host may tell: the bytes of the value in, the bytes of the answer out."""


class Client:
    """Requests behind one proxy."""

    def __init__(self, world: World, gateway: Gateway) -> None:
        self.world = world
        self.gateway = gateway

    def connect(self, host: str) -> ssl.SSLSocket:
        """A connection that is ready for a request."""
        sock, status = tunnel(Path(self.gateway.socket), host, 443)
        assert b" 200 " in status, status
        context = ssl.create_default_context(cafile=str(Path(self.gateway.socket).with_name("ca.pem")))
        return context.wrap_socket(sock, server_hostname=host)

    def get(self, host: str, path: str, *headers: str) -> bytes:
        """The whole answer, as far as it came."""
        said = b""
        with self.connect(host) as sock, contextlib.suppress(OSError):
            sock.sendall(request(host, path, *headers, "Connection: close"))
            while data := sock.recv(65536):
                said += data
        return said

    def use(self, host: str) -> bytes:
        """A request with the secret in it."""
        return self.get(host, "/used", f"Authorization: Bearer {self.gateway.env['TOKEN']}")

    def told(self, host: str, data: bytes) -> bytes:
        """The answer of a host that tells these bytes, to a request without a secret."""
        self.world.files["/told"] = b"<" + data + b">"
        return self.get(host, "/told")


def request(host: str, path: str, *headers: str, method: str = "GET") -> bytes:
    """The bytes of a request."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


def leaked(said: bytes, shown: bytes) -> bool:
    """Whether enough of it arrived to know the rest by. A compressed answer has to be cut off."""
    core = shown[len(shown) // 3 :][: max(8, len(shown) // 2)]
    return core in said


class Scene:
    """A world of two hosts, a secret in a file that is bound to both, and proxies of one session."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.world = World(base)
        for number, host in enumerate(HOSTS):
            self.world.serve(host, f"93.184.216.{number + 1}")
        self.file = base / "secret"
        self.put(VALUE)
        self.sources = [Source("token", "file", (str(self.file),))]
        self.use = SecretUse("token", HOSTS, variable="TOKEN")
        self.policy = EgressPolicy(allow=tuple(Destination(host) for host in HOSTS), secrets=(self.use,))

    def put(self, value: str) -> None:
        """Rotate the secret."""
        self.file.write_text(value)
        self.file.chmod(0o600)

    def egress(self) -> ProxyEgress:
        """The door, with nothing in memory."""
        return ProxyEgress(
            self.base / "home" / "egress",
            ReferenceVault(self.sources, dict(os.environ), SystemClock()),
            bundle=str(self.world.bundle),
            network=part(self.world.tables),
        )

    async def open(self, policy: EgressPolicy | None = None) -> Client:
        """A client of the living proxy, or of a new one."""
        return Client(self.world, await self.egress().open(SES, policy or self.policy, uid=os.getuid()))

    async def close(self) -> None:
        """End everything."""
        await self.egress().forget(SES)
        self.world.close()


@contextlib.asynccontextmanager
async def scene(base: Path) -> AsyncIterator[Scene]:
    """A fresh one."""
    made = Scene(base)
    try:
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await made.close()


def every_tell(client: Client, host: str) -> dict[str, bool]:
    """Which tells leak."""
    found = {}
    for name, tell in TELLS.items():
        shown = tell(VALUE.encode())
        found[name] = leaked(client.told(host, shown) if name not in PACKED else packed(client, host, shown), shown)
    return found


PACKED = ("gzip", "two gzip files", "zlib", "deflate", "bzip2", "xz", "zstd")


def packed(client: Client, host: str, data: bytes) -> bytes:
    """As `told`, with nothing before the bytes."""
    client.world.files["/told"] = data
    return client.get(host, "/told")


def stream(client: Client, pieces: list[bytes], *, use: bool = False) -> bytes:
    """What arrives of an event stream whose request was made before the secret was ever used."""
    events: queue.Queue[bytes | None] = queue.Queue()
    client.world.streams["/events"] = events
    said = b""
    with client.connect(HOSTS[0]) as sock, contextlib.suppress(OSError):
        sock.sendall(request(HOSTS[0], "/events", "Connection: close"))
        events.put(b"data: begins\n\n")
        while b"begins" not in said:
            said += sock.recv(65536)
        if use:
            client.use(HOSTS[0])
        for piece in pieces:
            events.put(piece)
        events.put(None)
        while data := sock.recv(65536):
            said += data
    return said


async def attempts(base: Path) -> dict[str, bool]:
    """Attempt → whether it leaked."""
    value = VALUE.encode()
    found: dict[str, bool] = {}
    async with scene(base) as given:
        run = anyio.to_thread.run_sync
        client = await given.open()
        found["a stream that began before the first use"] = leaked(
            await run(lambda: stream(client, [b"data: " + value + b"\n\n"], use=True)), value
        )
        cut = [value[at : at + 1] for at in range(len(value))]
        found["a stream of single bytes"] = leaked(dechunked(await run(stream, client, cut)), value)
        found |= {f"after a use: {name}": bad for name, bad in (await run(every_tell, client, HOSTS[0])).items()}
        found |= {f"another host: {name}": bad for name, bad in (await run(every_tell, client, HOSTS[1])).items()}
        await given.egress().close(SES)
        client = await given.open()
        found |= {f"a new proxy: {name}": bad for name, bad in (await run(every_tell, client, HOSTS[0])).items()}
        for number in range(20):
            given.put(f"rotated-value-{number:04}")
            await run(client.use, HOSTS[0])
        found["a value 20 rotations old"] = leaked(await run(client.told, HOSTS[0], value), value)
        found["a value 20 rotations old, another host"] = leaked(await run(client.told, HOSTS[1], value), value)
        given.put("a-value-that-nobody-used")
        shown = b"a-value-that-nobody-used"
        found["a value that nobody used"] = leaked(await run(client.told, HOSTS[1], shown), shown)
        await given.egress().change(SES, EgressPolicy(allow=given.policy.allow))
        found["a host that is no longer bound"] = leaked(await run(client.told, HOSTS[0], value), value)
    return found


def dechunked(said: bytes) -> bytes:
    """The body of a chunked answer."""
    rest, out = said.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not size.strip() or not int(size, 16):
            break
        out, rest = out + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return out


if __name__ == "__main__":
    print(json.dumps(anyio.run(attempts, Path(sys.argv[1]))))
