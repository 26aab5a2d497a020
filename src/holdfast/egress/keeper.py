"""The keeper of a proxy: it has the user's rights and secrets, so that the proxy needs neither.

The proxy, its child, parses what strangers send; it has no capability, cannot start a program, and under root is a
user of its own. The keeper reads nothing of the network: from the control socket it hears the user's orders, which it
passes on without the places of secrets, and from the proxy names of secrets, which it looks up in those orders.
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
from holdfast.facts import nesting
from holdfast.vault.base import Secret
from holdfast.vault.reference_vault import ReferenceVault, look_up, outline, take_over
from holdfast.vault.sources import Source

ASK_S = 10.0
"""How long who connects to the control socket may take to ask."""

_ANSWER_MAX = 1 << 17

_decode_reply = msgspec.json.Decoder(Reply).decode
_encode = msgspec.json.Encoder().encode


class _Found(msgspec.Struct, frozen=True):
    """What the keeper answers: a value, or why there is none."""

    value: str = ""
    problem: str = ""


_decode_found = msgspec.json.Decoder(_Found).decode


class Borrowed(ReferenceVault):
    """The proxy's side: knows which secrets there are, and asks the keeper for each value. Not for threads."""

    def __init__(self, outlined: bytes, asks: socket.socket, clock: Clock) -> None:
        known = take_over(outlined, clock)
        super().__init__([known.source(name) for name in known.names()], {}, clock)
        self._asks = asks

    def _look(self, source: Source) -> Secret | str:
        try:
            self._asks.send(source.name.encode())
            found = _decode_found(self._asks.recv(_ANSWER_MAX))
        except (OSError, msgspec.DecodeError):
            return "its keeper has ended"
        return found.problem or Secret(found.value)


class Keeper:
    """The parent of a proxy, for its life. `ends` lead to it; `control` is where the user's orders come in."""

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
        """Until that process has ended; then nothing of it is left."""
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
        """Look up what the proxy asks for, one after the other."""
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
        """One question of the user's, and its answer."""
        with sock, contextlib.suppress(OSError, EOFError):
            sock.settimeout(ASK_S)
            line = _read_line(sock)
            try:
                ask = nesting.decode_as(bytes(line), Ask)
                reply = self._put(ask)
            except (HoldfastError, msgspec.DecodeError, msgspec.ValidationError) as error:
                reply = Reply(False, str(error) if isinstance(error, HoldfastError) else "that was no question")
            else:
                if ask.verb == "close":
                    self._remove_sockets()
            sock.sendall(_encode(reply) + b"\n")

    def _put(self, ask: Ask) -> Reply:
        """Have the proxy answer. New secrets count before it hears of them, and only if it takes the orders."""
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
    """Up to a line's end. Raises `EOFError` at the end of the connection, or past the longest line."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = sock.recv(1 << 18)
        line += data
        if not data or len(line) > LINE_MAX:
            raise EOFError
    return bytes(line)
