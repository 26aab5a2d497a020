"""Client of the proxies: start, find, change, query, and end the proxy process of a session."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.egress.base import Gateway, Notes
from holdfast.egress.control import (
    Ask,
    Launch,
    Orders,
    Places,
    Ready,
    Reply,
    is_locked,
    make,
    places,
    reach,
    write_whole,
)
from holdfast.egress.journal import notes
from holdfast.egress.placeholders import PORT, environment, new_placeholder
from holdfast.egress.rules import Rules
from holdfast.egress.streams import Ended, Stream
from holdfast.errors import EgressUnavailable
from holdfast.facts.session import Destination, EgressPolicy
from holdfast.ids import Entropy, system_entropy
from holdfast.locks import try_flock
from holdfast.vault.base import Vault

READY_S = 30.0
"""Time limit for a proxy to start, in seconds."""

ANSWER_S = 10.0
"""Time limit for a running proxy to reply, in seconds."""


class Part(NamedTuple):
    """The program of a proxy: the module with its `main`, and the argument for its `Network`."""

    module: str
    argument: str = ""


SYSTEM = Part("holdfast.egress.proxy_process")
"""The program that uses the network of this machine."""

_STEP_S = 0.005

_ready = msgspec.json.Decoder(Ready).decode
_reply = msgspec.json.Decoder(Reply).decode
_placeholders = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


class ProxyEgress:
    """Network access through one proxy process for each session. All state is on disk, so any process finds a proxy.

    `folder` is `<home>/egress`. `registries` returns the package registries, and is called only when needed. `bundle`
    is a file of certificates to trust upstream, empty for the system's; `through` is the upstream proxy of the network
    as `host:port`, empty for none. An upstream proxy resolves names itself.
    """

    def __init__(
        self,
        folder: Path,
        vault: Vault,
        *,
        registries: Callable[[], Sequence[Destination]] = tuple,
        bundle: str = "",
        through: str = "",
        network: Part = SYSTEM,
        idle_s: float = 900.0,
        longest_s: float = 14 * 86_400.0,
        clock: Clock | None = None,
        entropy: Entropy = system_entropy,
    ) -> None:
        self._folder = folder.absolute()
        self._vault = vault
        self._registries = registries
        self._bundle = bundle
        self._through = through
        self._network = network
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._clock = clock or SystemClock()
        self._entropy = entropy

    async def open(
        self, session_id: str, policy: EgressPolicy, *, uid: int, held: tuple[str, ...] = (), wary: bool = False
    ) -> Gateway:
        """See `Egress.open`. Raises `EgressUnavailable`."""
        found = await anyio.to_thread.run_sync(make, self._folder, session_id)
        async with self._alone(found):
            orders = await anyio.to_thread.run_sync(self._orders, found, policy, held, wary, (uid,))
            if not await self._tell(found, orders):
                await self._start(session_id, found, orders)
        return Gateway(str(found.socket), PORT, environment(policy, orders.placeholders))

    async def change(
        self, session_id: str, policy: EgressPolicy, *, held: tuple[str, ...] = (), wary: bool = False
    ) -> None:
        """See `Egress.change`."""
        found = places(self._folder, session_id)
        if not is_locked(found.lock):
            return
        async with self._alone(found):
            await self._tell(found, await anyio.to_thread.run_sync(self._orders, found, policy, held, wary, ()))

    async def notes(self, session_id: str, after: int) -> Notes:
        """See `Egress.notes`."""
        found = places(self._folder, session_id)
        if is_locked(found.lock):
            with contextlib.suppress(EgressUnavailable):
                await self._ask(found, Ask("notes", after=after))
        return await anyio.to_thread.run_sync(notes, found.journal, after)

    async def close(self, session_id: str) -> None:
        """End the proxy; kill it if it does not reply."""
        found = places(self._folder, session_id)
        if not is_locked(found.lock):
            return
        try:
            await self._ask(found, Ask("close"))
        except EgressUnavailable:
            await anyio.to_thread.run_sync(_kill, found)
        with anyio.move_on_after(ANSWER_S):
            while is_locked(found.lock):
                await self._clock.sleep(_STEP_S)
            return
        await anyio.to_thread.run_sync(_kill, found)

    async def forget(self, session_id: str) -> None:
        """End the proxy, and remove all its files."""
        await self.close(session_id)
        found = places(self._folder, session_id)
        for path in (found.own, found.door):
            await anyio.to_thread.run_sync(shutil.rmtree, path, True)

    # --- requests to the proxy ---

    def _orders(
        self, found: Places, policy: EgressPolicy, held: tuple[str, ...], wary: bool, uids: tuple[int, ...]
    ) -> Orders:
        """Make the orders for a proxy. Blocks. Raises `EgressUnavailable`, `SecretUnavailable`."""
        registries = tuple(self._registries()) if policy.registries else ()
        Rules(policy, registries)
        names = list(dict.fromkeys(use.name for use in policy.secrets))
        known: dict[str, str] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
            known = _placeholders(found.state.read_bytes())
        fresh = {name: new_placeholder(self._entropy) for name in names if name not in known}
        if fresh:
            known = {**known, **fresh}
            write_whole(found.state, _encode(known), 0o600)
        return Orders(policy, self._vault.handover(names), known, held, wary, uids, registries)

    async def _tell(self, found: Places, orders: Orders) -> bool:
        """Send orders to the running proxy; return False if there is none. Raises `EgressUnavailable`."""
        if not is_locked(found.lock):
            return False
        try:
            reply = await self._ask(found, Ask("change", orders))
        except EgressUnavailable:
            if is_locked(found.lock):
                raise
            return False
        if not reply.ok:
            raise EgressUnavailable(reply.problem)
        return True

    async def _ask(self, found: Places, ask: Ask) -> Reply:
        """Send one request to the running proxy. Raises `EgressUnavailable`."""
        stuck = EgressUnavailable(
            f"the proxy of this session lives but does not reply at {found.control}; no further request was allowed. "
            "Try again later"
        )
        with anyio.move_on_after(ANSWER_S):
            while is_locked(found.lock):
                try:
                    stream = Stream(reach(found.control))
                except OSError:
                    await self._clock.sleep(_STEP_S)
                    continue
                try:
                    await stream.send(_encode(ask) + b"\n")
                    said = b""
                    while not said.endswith(b"\n"):
                        data = await stream.recv()
                        if not data:
                            raise Ended("it ended")
                        said += data
                    return _reply(said)
                except Ended:
                    continue
                finally:
                    stream.close()
            raise EgressUnavailable("the proxy of this session has ended; no further request was allowed")
        raise stuck

    @asynccontextmanager
    async def _alone(self, found: Places) -> AsyncIterator[None]:
        """Keep other processes from starting or changing this session's proxy."""
        fd = -1
        try:
            fd = os.open(found.own / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            while not try_flock(fd):
                await self._clock.sleep(_STEP_S)
            yield
        except OSError as error:
            raise EgressUnavailable(
                f"the folder {found.own} of the egress proxy cannot be used ({error.strerror or error}); the sandbox "
                "has no network. Free some space, make the folder writable, or choose another home with --home"
            ) from None
        finally:
            if fd >= 0:
                os.close(fd)

    # --- start ---

    async def _start(self, session_id: str, found: Places, orders: Orders) -> None:
        launch = Launch(
            folder=str(self._folder),
            session_id=session_id,
            orders=orders,
            network=self._network.argument,
            bundle=self._bundle,
            through=self._through,
            idle_s=self._idle_s,
            longest_s=self._longest_s,
        )
        ready = await anyio.to_thread.run_sync(_run, self._network.module, _encode(launch))
        if not ready.ok:
            raise EgressUnavailable(f"the sandbox has no network: {ready.problem}")


def _run(module: str, launch: bytes) -> Ready:
    """Start a proxy, which outlives this process, and wait until it is ready. Blocks."""
    paths = [os.path.abspath(path) for path in sys.path if path]
    program = f"import sys; sys.path[:] = {paths!r}; from {module} import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        cwd="/",
    )
    try:
        said, complaint = child.communicate(launch, timeout=READY_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return Ready(False, f"its proxy did not start within {READY_S:.0f} s; try again")
    try:
        return _ready(said)
    except msgspec.DecodeError:
        words = complaint.decode("utf-8", "replace").strip().splitlines()
        return Ready(False, f"its proxy did not start: {words[-1] if words else 'it was killed'}")


def _kill(found: Places) -> None:
    """Kill a proxy that does not reply. The kernel reports the process id of its socket."""
    with contextlib.suppress(OSError), reach(found.control) as sock:
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        handle = os.pidfd_open(pid)
        try:
            if is_locked(found.lock):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], ANSWER_S)
        finally:
            os.close(handle)
