"""Main program of a proxy: detach, give up privileges, report readiness, and serve.

Its launch comes on standard input; see `proxy`. It runs as two processes: the keeper (`keeper`) and its child, the
proxy itself. No other process of their user can read their memory, and they write no core dump.
"""

from __future__ import annotations

import codecs
import concurrent.futures.thread
import contextlib
import ctypes
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio._backends._asyncio
import anyio.abc
import msgspec

from holdfast.clock import SystemClock
from holdfast.egress.certificates import Authority
from holdfast.egress.control import Ask, Launch, Orders, Places, Ready, Reply, hold_lock, listen, places, write_whole
from holdfast.egress.journal import Journal
from holdfast.egress.keeper import Borrowed, Keeper
from holdfast.egress.placeholders import Placeholders, apt_conf, system_bundle
from holdfast.egress.rules import Malformed, Place, Rules, read_authority
from holdfast.egress.server import Server
from holdfast.egress.state import State
from holdfast.egress.streams import Ended, Stream
from holdfast.egress.upstream import Network, Outward, SystemNetwork
from holdfast.errors import HoldfastError
from holdfast.facts import bounded_json
from holdfast.ids import system_entropy
from holdfast.privileges import die_with, give_up
from holdfast.seccomp import assemble_here
from holdfast.uids import set_apart
from holdfast.vault.reference_vault import outline, take_over

# Import all modules early: without privileges, the proxy may be unable to read their folder. `_confine` ends all
# imports, so that tests notice what is missing here. `anyio`, codecs, and threads are imported at their first use.
for _name in dir(anyio):
    getattr(anyio, _name)
_ = concurrent.futures.thread
for _name in ("ascii", "idna", "latin-1", "utf-16-be", "utf-16-le"):
    codecs.lookup(_name)

FLUSH_S = 0.2
"""Pause between two writes of the journal, in seconds."""

LOOK_S = 5.0
"""Interval at which the proxy checks if it is idle, in seconds."""

_PR_SET_DUMPABLE = 4

_encode = msgspec.json.Encoder().encode


def system_network(_: str) -> Network:
    """Return the network of this machine."""
    return SystemNetwork()


class Proxy:
    """The main loop of a proxy."""

    def __init__(self, launch: Launch, network: Network, found: Places, ends: tuple[socket.socket, ...]) -> None:
        self._launch = launch
        self._clock = SystemClock()
        self._places = found
        self._user = os.getuid()
        self._orders, self._asks = ends
        bundle = system_bundle(launch.bundle)
        authority = Authority(self._clock, system_entropy)
        outward = Outward(network, _trust(bundle), _through(launch.through))
        orders = launch.orders
        self.state = State(
            Rules(orders.policy, orders.registries),
            Borrowed(outline(orders.vault), self._asks, self._clock),
            Journal(Path(self._places.journal.name)),
            authority,
            outward,
        )
        self._adopt(orders)
        write_whole(self._places.bundle, bundle.rstrip(b"\n") + b"\n" + authority.pem(), 0o644)
        write_whole(self._places.door / "apt.conf", apt_conf(), 0o644)
        self._server = Server(self.state, listen(self._places.socket, 0o666))
        self._heard_s = self._clock.monotonic_s()
        self._began_s = self._heard_s

    def _adopt(self, orders: Orders) -> None:
        """Apply new orders. After a `HoldfastError`, nothing has changed."""
        rules = Rules(orders.policy, orders.registries)
        self.state.adopt(rules, Borrowed(outline(orders.vault), self._asks, self._clock))
        self.state.placeholders = Placeholders(orders.placeholders)
        self.state.held, self.state.wary = frozenset(orders.held), orders.wary
        self.state.uids |= {self._user, *orders.uids}

    async def run(self) -> None:
        """Serve until an order to end, or until the proxy is idle for too long."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._server.serve)
            group.start_soon(self._listen, group.cancel_scope)
            group.start_soon(self._write_notes)
            group.start_soon(self._watch, group.cancel_scope)
            group.start_soon(self._on_signal, group.cancel_scope)

    def end(self) -> None:
        """Write the last notes. The keeper removes the sockets."""
        self.state.journal.flush()

    async def _write_notes(self) -> None:
        while True:
            await self.state.noted()
            self.state.journal.flush()
            await self._clock.sleep(FLUSH_S)

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """End after a while without connections and orders."""
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

    # --- orders from the keeper ---

    async def _listen(self, scope: anyio.CancelScope) -> None:
        """Answer the user's orders; end with the keeper."""
        stream, line = Stream(self._orders), bytearray()
        with contextlib.suppress(Ended):
            while data := await stream.recv():
                line += data
                if not line.endswith(b"\n"):
                    continue
                ask = bounded_json.decode_as(bytes(line), Ask)
                line.clear()
                self._heard_s = self._clock.monotonic_s()
                try:
                    reply = self._answer(ask)
                except HoldfastError as error:
                    reply = Reply(False, str(error))
                await stream.send(_encode(reply) + b"\n")
                if ask.verb == "close":
                    break
        scope.cancel()

    def _answer(self, ask: Ask) -> Reply:
        match ask.verb:
            case "change" if ask.orders is not None:
                self._adopt(ask.orders)
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
        raise ValueError(f"invalid upstream proxy {text!r}: {error}; write host:port") from None


def _hide() -> None:
    """Keep other processes of the user from reading this process's memory, and disable core dumps."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave() -> None:
    """Detach from the parent and its process session, so that this process outlives them."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def _confine(found: Places, session_id: str, keeper: int) -> None:
    """Give up all access but open files and the folder of the journal, and all imports. Raises `OSError`."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        uid = gid = set_apart(f"proxy {session_id}", "process")
        for path in (found.notes, found.journal):
            os.chown(path, uid, gid, follow_symlinks=False)
    give_up(uid=uid, gid=gid, filter_calls=assemble_here(programs=False) or b"")
    die_with(keeper, signal.SIGKILL)
    sys.meta_path.clear()


def main(network: Callable[[str], Network] = system_network) -> None:
    """Read the launch from standard input, and write the result of the start to standard output."""
    _hide()
    launch = msgspec.json.decode(sys.stdin.buffer.read(), type=Launch)
    _leave()
    found = places(Path(launch.folder), launch.session_id)
    proxy, problem, log = None, "", -1
    try:
        hold_lock(found.lock)
        log = os.open(found.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        ends = _fork_from_keeper(launch, found, log)
        proxy = Proxy(launch, network(launch.network), found, ends)
        _confine(found, launch.session_id, os.getppid())
    except HoldfastError as error:
        problem = str(error)
    except (OSError, ValueError) as error:
        problem = f"the proxy could not start: {error}"
    with contextlib.suppress(OSError):
        os.write(1, _encode(Ready(proxy is not None and not problem, problem, os.getpid())) + b"\n")
    if proxy is None or problem:
        return
    _quiet(log)
    try:
        anyio.run(proxy.run)
    finally:
        proxy.end()


def _fork_from_keeper(launch: Launch, found: Places, log: int) -> tuple[socket.socket, ...]:
    """Fork: the parent becomes the keeper, the child runs in the journal's folder. Returns the child's sockets."""
    clock = SystemClock()
    vault = take_over(launch.orders.vault, clock)
    control = listen(found.control, 0o600)
    orders, asks = socket.socketpair(), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    for pair in (orders, asks):
        pair[1 if pid else 0].close()
    if pid:
        _quiet(log)
        Keeper(found, vault, clock, control=control, ends=(orders[0], asks[0])).serve(pid)
    control.close()
    os.chdir(found.notes)
    return orders[1], asks[1]


def _quiet(log: int) -> None:
    """Redirect errors to the log, and close the pipes to the starting process."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd, to in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, to, inheritable=False)
