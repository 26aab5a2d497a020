"""Where a proxy begins: it leaves whoever started it, says how that went, and serves until it is not needed.

Run with its launch on standard input, see `proxy`. Nothing of its memory can be read by
other processes of its user, and it leaves no core.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from holdfast.clock import SystemClock
from holdfast.egress.authority import Authority
from holdfast.egress.files import Places, hold_lock, listen, places, write_whole
from holdfast.egress.inside import apt_conf, system_bundle
from holdfast.egress.journal import Journal
from holdfast.egress.names import Malformed, Place, read_authority
from holdfast.egress.outward import Network, Outward, SystemNetwork
from holdfast.egress.placeholders import Placeholders
from holdfast.egress.rules import Rules
from holdfast.egress.server import Server
from holdfast.egress.state import State
from holdfast.egress.streams import Ended, Stream
from holdfast.egress.wire import LINE_MAX, Ask, Launch, Orders, Ready, Reply
from holdfast.errors import HoldfastError
from holdfast.ids import system_entropy
from holdfast.vault.kept import take_over

FLUSH_S = 0.2
"""How long something may be noted before it is written, when something else was written just before."""

LOOK_S = 5.0
"""How often it looks whether it is needed, in seconds."""

_PR_SET_DUMPABLE = 4

_decode_ask = msgspec.json.Decoder(Ask).decode
_encode = msgspec.json.Encoder().encode


def system_network(_: str) -> Network:
    """The network of this machine."""
    return SystemNetwork()


class Proxy:
    """One proxy's life."""

    def __init__(self, launch: Launch, network: Network) -> None:
        self._launch = launch
        self._clock = SystemClock()
        self._places: Places = places(Path(launch.folder), launch.session_id)
        self._lock = hold_lock(self._places.lock)
        bundle = system_bundle(launch.bundle)
        authority = Authority(self._clock, system_entropy)
        outward = Outward(network, _trust(bundle), _through(launch.through))
        orders = launch.orders
        self.state = State(
            Rules(orders.policy, orders.registries),
            take_over(orders.vault, self._clock),
            Journal(self._places.journal),
            authority,
            outward,
        )
        self._obey(orders)
        write_whole(self._places.bundle, bundle.rstrip(b"\n") + b"\n" + authority.pem(), 0o644)
        write_whole(self._places.door / "apt.conf", apt_conf(), 0o644)
        self._server = Server(self.state, listen(self._places.socket, 0o666))
        self._control = listen(self._places.control, 0o600)
        self._heard_s = self._clock.monotonic_s()
        self._began_s = self._heard_s

    def _obey(self, orders: Orders) -> None:
        """Put new orders in force. Raises `HoldfastError`, and changes nothing then."""
        rules = Rules(orders.policy, orders.registries)
        vault = take_over(orders.vault, self._clock, self.state.vault)
        self.state.rules, self.state.vault = rules, vault
        self.state.placeholders = Placeholders(orders.placeholders)
        self.state.held, self.state.wary = frozenset(orders.held), orders.wary
        self.state.uids |= {os.getuid(), *orders.uids}

    async def run(self) -> None:
        """Serve until there is a reason to end."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._server.serve)
            group.start_soon(self._listen, group)
            group.start_soon(self._write_notes)
            group.start_soon(self._watch, group.cancel_scope)
            group.start_soon(self._on_signal, group.cancel_scope)

    def end(self) -> None:
        """The last notes; nobody is let in any more."""
        for path in (self._places.socket, self._places.control):
            path.unlink(missing_ok=True)
        self.state.journal.flush()

    async def _write_notes(self) -> None:
        while True:
            await self.state.noted()
            self.state.journal.flush()
            await self._clock.sleep(FLUSH_S)

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """End when nobody needs it: no connection, no hands, no word of ours for a while."""
        while True:
            await self._clock.sleep(min(LOOK_S, self._launch.idle_s / 2))
            now_s = self._clock.monotonic_s()
            if self._server.connections:
                self._heard_s = now_s
            aged = now_s - self._began_s > self._launch.longest_s and self._server.busy == 0
            if aged or now_s - self._heard_s > self._launch.idle_s:
                scope.cancel()

    async def _on_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                scope.cancel()

    # --- the control socket ---

    async def _listen(self, group: anyio.abc.TaskGroup) -> None:
        while True:
            await anyio.wait_readable(self._control)
            with contextlib.suppress(OSError):
                sock, _ = self._control.accept()
                _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if uid in (0, os.getuid()):
                    group.start_soon(self._hear, Stream(sock), group.cancel_scope)
                else:
                    sock.close()

    async def _hear(self, stream: Stream, scope: anyio.CancelScope) -> None:
        try:
            line = bytearray()
            while not line.endswith(b"\n") and len(line) < LINE_MAX:
                data = await stream.recv(wait_s=10.0)
                if not data:
                    return
                line += data
            self._heard_s = self._clock.monotonic_s()
            ends = False
            try:
                ask = _decode_ask(line)
                reply = self._answer(ask)
                ends = ask.verb == "close"
            except (HoldfastError, msgspec.DecodeError, msgspec.ValidationError) as error:
                reply = Reply(False, str(error) if isinstance(error, HoldfastError) else "that was no question")
            await stream.send(_encode(reply) + b"\n")
            if ends:
                scope.cancel()
        except Ended:
            pass
        finally:
            stream.close()

    def _answer(self, ask: Ask) -> Reply:
        match ask.verb:
            case "change" if ask.orders is not None:
                self._obey(ask.orders)
            case "notes":
                self.state.journal.flush()
                self.state.journal.forget(ask.after)
            case "close":
                self.end()
            case _:
                pass
        return Reply(True, pid=os.getpid())


def _trust(bundle: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=bundle.decode("ascii", "ignore"))
    context.set_alpn_protocols(["http/1.1"])
    return context


def _through(text: str) -> Place | None:
    if not text:
        return None
    try:
        return read_authority(text.encode())
    except Malformed as error:
        raise ValueError(f"the network's own proxy is named {text!r}, and {error}; write host:port") from None


def _hide() -> None:
    """No process of our user reads our memory, and no core is left."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave() -> None:
    """Leave the process session and the parent behind: what ends them does not reach us."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def main(network: Callable[[str], Network] = system_network) -> None:
    """Standard input: the launch. Standard output: one line that says whether it went well."""
    _hide()
    launch = msgspec.json.decode(sys.stdin.buffer.read(), type=Launch)
    _leave()
    proxy, problem = None, ""
    try:
        proxy = Proxy(launch, network(launch.network))
    except HoldfastError as error:
        problem = str(error)
    except (OSError, ValueError) as error:
        problem = f"the proxy could not start: {error}"
    with contextlib.suppress(OSError):
        os.write(1, _encode(Ready(proxy is not None, problem, os.getpid())) + b"\n")
    if proxy is None:
        return
    null = os.open("/dev/null", os.O_RDWR)
    log = os.open(places(Path(launch.folder), launch.session_id).log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, to in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, to, inheritable=False)
    try:
        anyio.run(proxy.run)
    finally:
        proxy.end()
