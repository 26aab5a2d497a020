"""The keeper of a proxy: the parent process with the user's rights and secrets, which the proxy does not need.

The proxy, its child, parses untrusted data; it has no capability, cannot start a program, and under root runs as a
separate user. The keeper reads nothing from the network: it accepts the user's orders on the control socket and passes
them on without the sources of secrets, and it looks up the secrets that the proxy names in those orders.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
from typing import NoReturn

import msgspec

from holdfast.clock import Clock
from holdfast.egress.control import LINE_MAX, Ask, Places, Reply
from holdfast.errors import HoldfastError, SecretUnavailable
from holdfast.facts import bounded_json
from holdfast.vault.base import Secret
from holdfast.vault.reference_vault import ReferenceVault, look_up, outline, take_over
from holdfast.vault.sources import Source

ASK_S = 10.0
"""Time limit for a client of the control socket to send its request, in seconds."""

_ANSWER_MAX = 1 << 17

_decode_reply = msgspec.json.Decoder(Reply).decode
_encode = msgspec.json.Encoder().encode


class _Found(msgspec.Struct, frozen=True):
    """The keeper's reply: a value, or the reason why there is none."""

    value: str = ""
    problem: str = ""


_decode_found = msgspec.json.Decoder(_Found).decode


class Borrowed(ReferenceVault):
    """The proxy's vault: it knows the names, and asks the keeper for each value. Not thread-safe."""

    def __init__(self, outlined: bytes, asks: socket.socket, clock: Clock) -> None:
        known = take_over(outlined, clock)
        super().__init__([known.source(name) for name in known.names()], {}, clock)
        self._asks = asks

    def _look(self, source: Source) -> Secret | str:
        try:
            self._asks.send(source.name.encode())
            found = _decode_found(self._asks.recv(_ANSWER_MAX))
        except (OSError, msgspec.DecodeError):
            return "the keeper of the proxy has ended"
        return found.problem or Secret(found.value)


class Keeper:
    """The parent process of a proxy. `ends` are sockets to the proxy; `control` accepts the user's orders."""

    def __init__(
        self,
        places: Places,
        vault: ReferenceVault,
        clock: Clock,
        *,
        control: socket.socket,
        ends: tuple[socket.socket, ...],
    ) -> None:
        self._places = places
        self._vault = vault
        self._clock = clock
        self._control = control
        self._orders, self._asks = ends
        self._turn = threading.Lock()

    def serve(self, proxy: int) -> NoReturn:
        """Serve until the proxy process has ended, then remove its sockets and exit."""
        signal.signal(signal.SIGTERM, lambda number, frame: os.kill(proxy, signal.SIGTERM))
        for work in (self._resolve_all, self._listen):
            threading.Thread(target=work, daemon=True).start()
        try:
            os.waitpid(proxy, 0)
        finally:
            self._remove_sockets()
            os._exit(0)

    def _remove_sockets(self) -> None:
        for path in (self._places.socket, self._places.control):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _resolve_all(self) -> None:
        """Look up the secrets that the proxy asks for, one at a time."""
        while name := self._asks.recv(1024):
            try:
                value = look_up(self._vault, name.decode("utf-8", "replace"))
            except SecretUnavailable as error:
                value = str(error)
            found = _Found(problem=value) if isinstance(value, str) else _Found(value=value.reveal())
            self._asks.send(_encode(found))

    def _listen(self) -> None:
        self._control.setblocking(True)
        while True:
            with contextlib.suppress(OSError):
                sock, _ = self._control.accept()
                _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if uid in (0, os.getuid()):
                    threading.Thread(target=self._hear, args=(sock,), daemon=True).start()
                else:
                    sock.close()

    def _hear(self, sock: socket.socket) -> None:
        """Answer one request of the user."""
        with sock, contextlib.suppress(OSError, EOFError):
            sock.settimeout(ASK_S)
            line = _read_line(sock)
            try:
                ask = bounded_json.decode_as(bytes(line), Ask)
                reply = self._put(ask)
            except (HoldfastError, msgspec.DecodeError, msgspec.ValidationError) as error:
                reply = Reply(False, str(error) if isinstance(error, HoldfastError) else "invalid request")
            else:
                if ask.verb == "close":
                    self._remove_sockets()
            sock.sendall(_encode(reply) + b"\n")

    def _put(self, ask: Ask) -> Reply:
        """Pass a request to the proxy. New secrets apply before it gets its orders, and only if it accepts them."""
        with self._turn:
            before = self._vault
            if ask.orders is not None:
                self._vault = take_over(ask.orders.vault, self._clock, before)
                told = msgspec.structs.replace(ask.orders, vault=outline(ask.orders.vault))
                ask = msgspec.structs.replace(ask, orders=told)
            self._orders.sendall(_encode(ask) + b"\n")
            reply = _decode_reply(_read_line(self._orders))
            if not reply.ok:
                self._vault = before
            return reply


def _read_line(sock: socket.socket) -> bytes:
    """Read one line. Raises `EOFError` at the end of the connection, or for too long a line."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = sock.recv(1 << 18)
        line += data
        if not data or len(line) > LINE_MAX:
            raise EOFError
    return bytes(line)
