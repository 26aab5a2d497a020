"""Cost of the egress proxy: TLS straight to a server, and the same through bridge and proxy, in the same run.

python bench/egress.py [--connections N] [--requests N] [--megabytes N] [--json]

`tunnel` is an allowed host without a secret; `intercept` is one whose secret is inserted in requests and masked in
responses. Targets, over straight: ≤ 10 ms for a new connection with its first request, ≤ 1.5 ms for a request on an
open one; and ≥ 100 MB/s of a response.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.egress.proxy import ProxyEgress
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from holdfast.hands.box.agent.bridge import Bridge
from holdfast.testing.egress import part
from holdfast.vault.fake import FakeVault

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.egress.upstream import World

CONNECTION_MS, REQUEST_MS, THROUGHPUT = 10.0, 1.5, 100.0
OPEN, API = "open.test", "api.test"
ANSWER = 1024
ROUNDS = 5


def serve(world: World, name: str, address: str) -> int:
    """A server in a process of its own, quick enough not to be what is measured."""
    context = world.context(name)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = int(listener.getsockname()[1])
    world.name(name, [address])
    world.route(address, 443, port)
    _fork(lambda: _answer_all(listener, context))
    listener.close()
    return port


def _answer_all(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        sock, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with context.wrap_socket(sock, server_side=True) as secure:
                while head := secure.recv(65536):
                    size = int(head.split(b" ", 2)[1].strip(b"/"))
                    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                    piece = bytes(1 << 20)
                    while size:
                        secure.sendall(piece[:size])
                        size -= min(size, len(piece))
            os._exit(0)
        sock.close()


CHILDREN: list[int] = []


def _fork(work: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            work()
        except (OSError, KeyboardInterrupt):
            pass
        finally:
            os._exit(0)
    CHILDREN.append(pid)


def _end_children() -> None:
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Way:
    """One way to a server."""

    def __init__(self, name: str, host: str, port: int, context: ssl.SSLContext, proxied: bool, key: str = "") -> None:
        self.name = name
        self._host = host
        self._port = port
        self._context = context
        self._proxied = proxied
        self._header = f"Authorization: Bearer {key}\r\n" if key else ""

    def connect(self) -> ssl.SSLSocket:
        """A connection that is ready for a request."""
        sock = socket.create_connection(("127.0.0.1", self._port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._proxied:
            sock.sendall(f"CONNECT {self._host}:443 HTTP/1.1\r\nHost: {self._host}:443\r\n\r\n".encode())
            said = sock.recv(4096)
            if b" 200 " not in said:
                raise OSError(said.decode())
        return self._context.wrap_socket(sock, server_hostname=self._host)

    def get(self, sock: ssl.SSLSocket, size: int, buffer: bytearray) -> None:
        """One request, and all of its answer."""
        sock.sendall(f"GET /{size} HTTP/1.1\r\nHost: {self._host}\r\n{self._header}\r\n".encode())
        said = b""
        while b"\r\n\r\n" not in said:
            data = sock.recv(65536)
            if not data:
                raise OSError("the answer ended")
            said += data
        if not said.startswith(b"HTTP/1.1 200"):
            raise OSError(said.decode("latin-1"))
        left = size - len(said.partition(b"\r\n\r\n")[2])
        while left:
            count = sock.recv_into(buffer)
            if not count:
                raise OSError("the answer ended")
            left -= count


def percentile(times: list[float], share: float) -> float:
    """That share of the times is at most so long."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def measure(ways: list[Way], connections: int, requests: int, megabytes: int) -> dict[str, dict[str, float]]:
    """All ways in turn, over and over, so that what else the machine does falls on all of them alike."""
    new: dict[str, list[float]] = {way.name: [] for way in ways}
    kept: dict[str, list[float]] = {way.name: [] for way in ways}
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    buffer = bytearray(1 << 18)
    for turn in range(connections + 2):
        for way in ways:
            began = time.perf_counter()
            sock = way.connect()
            way.get(sock, ANSWER, buffer)
            took = time.perf_counter() - began
            sock.close()
            if turn > 1:
                new[way.name].append(took * 1000)
    for way in ways:
        sock = way.connect()
        for turn in range(requests + 5):
            began = time.perf_counter()
            way.get(sock, ANSWER, buffer)
            if turn > 4:
                kept[way.name].append((time.perf_counter() - began) * 1000)
        sock.close()
    for _ in range(ROUNDS):
        for way in ways:
            sock = way.connect()
            way.get(sock, ANSWER, buffer)
            began = time.perf_counter()
            way.get(sock, megabytes << 20, buffer)
            rates[way.name].append(megabytes * 1.048576 / (time.perf_counter() - began))
            sock.close()
    return {
        way.name: {
            "connection_p50_ms": percentile(new[way.name], 0.5),
            "connection_p95_ms": percentile(new[way.name], 0.95),
            "request_p50_ms": percentile(kept[way.name], 0.5),
            "request_p95_ms": percentile(kept[way.name], 0.95),
            "mb_per_s": percentile(rates[way.name], 0.5),
        }
        for way in ways
    }


async def main(given: argparse.Namespace, home: Path) -> int:
    """Measure, print, and say by the exit status whether the targets are met."""
    home.chmod(0o755)  # a proxy that root starts reads the tables as another user
    world = World(home)
    ports = {name: serve(world, name, f"93.184.216.{number}") for number, name in enumerate((OPEN, API), 1)}
    egress = ProxyEgress(
        home / "egress", FakeVault({"key": "a-secret-of-the-benchmark"}, SystemClock()), bundle=str(world.bundle),
        network=part(world.tables),
    )  # fmt: skip
    policy = EgressPolicy(
        allow=(Destination(OPEN), Destination(API)), secrets=(SecretUse("key", (API,), variable="KEY"),),
        bytes_max=1 << 50, requests_max=1 << 40,
    )  # fmt: skip
    began = time.perf_counter()
    gateway = await egress.open("ses_bench", policy, uid=os.getuid())
    start_ms = (time.perf_counter() - began) * 1000
    bridge = socket.create_server(("127.0.0.1", 0), backlog=64)
    bridge.setblocking(False)
    _fork(lambda: Bridge(bridge, gateway.socket).serve())
    port = int(bridge.getsockname()[1])
    straight = ssl.create_default_context(cafile=str(world.bundle))
    inside = ssl.create_default_context(cafile=str(Path(gateway.socket).with_name("ca.pem")))
    ways = [
        Way("straight", OPEN, ports[OPEN], straight, False),
        Way("tunnel", OPEN, port, inside, True),
        Way("intercept", API, port, inside, True, gateway.env["KEY"]),
    ]
    try:
        found = await anyio.to_thread.run_sync(measure, ways, given.connections, given.requests, given.megabytes)
    finally:
        await egress.forget("ses_bench")
        await anyio.to_thread.run_sync(_end_children)
    return report(found, start_ms, as_json=given.json)


def report(found: dict[str, dict[str, float]], start_ms: float, *, as_json: bool) -> int:
    """The table, or JSON. 1 when a target is missed."""
    floor = found["straight"]
    over = {
        name: {
            "connection_ms": each["connection_p50_ms"] - floor["connection_p50_ms"],
            "request_ms": each["request_p50_ms"] - floor["request_p50_ms"],
        }
        for name, each in found.items()
    }
    met = all(
        over[name]["connection_ms"] <= CONNECTION_MS
        and over[name]["request_ms"] <= REQUEST_MS
        and found[name]["mb_per_s"] >= THROUGHPUT
        for name in ("tunnel", "intercept")
    )
    if as_json:
        print(json.dumps({"ways": found, "over_straight": over, "start_ms": start_ms, "met": met}))
        return 0 if met else 1
    print(
        f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Python {platform.python_version()}"
    )
    print(f"{' '.join(sys.argv)}\n")
    print(f"{'':10} {'new connection, ms':>28} {'request on it, ms':>28} {'answer':>12}")
    print(f"{'':10} {'p50':>9} {'p95':>9} {'over':>8} {'p50':>9} {'p95':>9} {'over':>8} {'MB/s':>12}")
    for name, each in found.items():
        print(
            f"{name:10} {each['connection_p50_ms']:9.2f} {each['connection_p95_ms']:9.2f} "
            f"{over[name]['connection_ms']:8.2f} {each['request_p50_ms']:9.2f} {each['request_p95_ms']:9.2f} "
            f"{over[name]['request_ms']:8.2f} {each['mb_per_s']:12.0f}"
        )
    print(f"\nstarting a proxy: {start_ms:.0f} ms")
    print(
        f"targets over straight: {CONNECTION_MS:.0f} ms, {REQUEST_MS} ms, {THROUGHPUT:.0f} MB/s: "
        f"{'met' if met else 'MISSED'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=60)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        sys.exit(anyio.run(main, parser.parse_args(), Path(folder)))
