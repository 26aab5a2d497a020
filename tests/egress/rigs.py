"""Real proxies for tests: a world of servers on loopback, and ways to be inside and to look at what came through."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.egress.base import Gateway
from holdfast.egress.control import reach
from holdfast.egress.proxy import ProxyEgress
from holdfast.testing.egress import SECRETS, Answer, Place, part
from holdfast.vault.fake import FakeVault
from tests.egress.upstream import World

VALUES = ("canary-alpha-0123456789", "canary-beta-9876543210")


class ProxyRig:
    """Two servers that are real, behind a proxy that is."""

    places = (Place("one.test", 443), Place("two.test", 443))
    values = VALUES
    uid = os.getuid()

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        for number, place in enumerate(self.places):
            self.world.serve(place.host, f"93.184.216.{number + 1}")
        self.vault = FakeVault(dict(zip(SECRETS, VALUES, strict=True)), SystemClock())
        self.folder = folder / "home" / "egress"
        self.egress = ProxyEgress(
            self.folder, self.vault, bundle=str(self.world.bundle), network=part(self.world.tables)
        )

    async def request(self, gateway: Gateway, place: Place, placeholder: str = "") -> Answer:
        """As a program inside would make it, but over the socket itself."""
        return await anyio.to_thread.run_sync(_request, Path(gateway.socket), place, placeholder)

    async def close(self) -> None:
        """End all proxies and servers."""
        sessions = [path.name for path in self.folder.iterdir()] if self.folder.exists() else []
        for session_id in sessions:
            if session_id != "doors":
                await self.egress.forget(session_id)
        self.world.close()


def dial(path: Path) -> socket.socket:
    """A connection to a proxy. Raises `OSError`."""
    sock = reach(path)
    sock.setblocking(True)
    sock.settimeout(20.0)
    return sock


def tunnel(path: Path, host: str, port: int) -> tuple[socket.socket, bytes]:
    """Ask for a tunnel: the connection, and the status line."""
    sock = dial(path)
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    said = b""
    while b"\r\n\r\n" not in said:
        data = sock.recv(4096)
        if not data:
            break
        said += data
    return sock, said.partition(b"\r\n")[0]


def _request(path: Path, place: Place, placeholder: str) -> Answer:
    try:
        sock, status = tunnel(path, *place)
    except OSError:
        return "unreachable"
    with contextlib.closing(sock):
        if b" 200 " not in status:
            return "refused"
        context = ssl.create_default_context(cafile=str(path.with_name("ca.pem")))
        with context.wrap_socket(sock, server_hostname=place.host) as secure:
            bearer = f"Authorization: Bearer {placeholder}\r\n" if placeholder else ""
            secure.sendall(f"GET / HTTP/1.1\r\nHost: {place.host}\r\n{bearer}Connection: close\r\n\r\n".encode())
            said = b""
            while data := secure.recv(65536):
                said += data
    if said.startswith(b"HTTP/1.1 200"):
        return "allowed"
    return "held" if b"approval" in said else "refused"


@asynccontextmanager
async def proxy_rig(folder: Path) -> AsyncIterator[ProxyRig]:
    """A fresh one."""
    rig = ProxyRig(folder)
    try:
        yield rig
    finally:
        with anyio.CancelScope(shield=True):
            await rig.close()
