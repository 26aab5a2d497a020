"""Server of the proxy: accept connections from the sandbox, and route each by its first request.

A tunnel is opaque, but the first TLS message of its client names a host. A client that asked for one host and then
names another one there (domain fronting) is cut off.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio
from anyio.lowlevel import checkpoint

from holdfast.egress.exchange import Conversation, intercept
from holdfast.egress.http import HEAD_S, IDLE_S, Head, Inbox, Refusal, answer_to, read_head
from holdfast.egress.rules import Malformed, Place, read_authority
from holdfast.egress.state import State
from holdfast.egress.streams import Ended, Stream

CONNECTIONS_MAX = 512
"""Largest number of concurrent connections; further ones are closed at once."""

MISTAKES_MAX = 200
"""Largest number of internal errors that are logged: a client that can cause one could otherwise fill the disk."""

PRESENT = b"PRESENT * HOLDFAST/1\r\n\r\n"
"""First bytes of the sandbox bridge on its separate connection, which is open while the sandbox lives."""

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Server:
    """A server of one listening socket, until its scope is cancelled."""

    def __init__(self, state: State, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._state = state
        self._listener = listener
        self._present = 0
        self._mistakes = 0
        self.connections = 0

    @property
    def busy(self) -> int:
        """Connections other than those of bridges."""
        return self.connections - self._present

    async def serve(self) -> None:
        """Accept connections."""
        async with anyio.create_task_group() as group:
            while True:
                await anyio.wait_readable(self._listener)
                with contextlib.suppress(OSError):
                    sock, _ = self._listener.accept()
                    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                    if uid in self._state.uids and self.connections < CONNECTIONS_MAX:
                        self.connections += 1
                        group.start_soon(self._hold, sock)
                    else:
                        sock.close()

    async def _hold(self, sock: socket.socket) -> None:
        """Serve one connection; its errors do not affect others."""
        stream = Stream(sock)
        try:
            await self._serve(Inbox(stream))
        except (Ended, anyio.ClosedResourceError):
            pass
        except Exception as error:
            self._mistakes += 1
            if self._mistakes > MISTAKES_MAX:
                return
            # The message could contain a secret or client data, so only the source line is logged.
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
            print(f"a connection ended by an internal error: {type(error).__name__} at {where}", file=sys.stderr)
        finally:
            self.connections -= 1
            stream.close()

    async def _serve(self, inbox: Inbox) -> None:
        place, head = Place("", 0), None
        try:
            raw = await inbox.head(wait_s=HEAD_S)
            if not raw:
                return
            if raw == PRESENT:
                self._present += 1
                try:
                    await inbox.stream.recv(1)
                finally:
                    self._present -= 1
                return
            head = read_head(raw)
            if head.method == "CONNECT":
                place = _place(head)
                await self._connect(inbox, head, place)
                return
        except Refusal as refusal:
            self._state.refused(place, head, refusal)
            await inbox.stream.send(answer_to(refusal))
            await inbox.stream.linger()
            return
        await Conversation(self._state, inbox, None).serve(head)

    async def _connect(self, inbox: Inbox, head: Head, place: Place) -> None:
        """Open the requested tunnel, opaque or with TLS terminated here. Raises `Refusal`."""
        state = self._state
        for name, value in head.headers:
            state.placeholders.check_nowhere(name + b":" + value, "in the request for a tunnel")
        state.check_bytes()
        destinations = state.rules.open(place)
        if not destinations:
            raise Refusal(403, f"the policy does not allow connections to {place.host}, port {place.port}")
        if not inbox.empty:
            raise Refusal(400, "the client used its tunnel before the response")
        searched = state.is_searched(place.host)
        if not searched:
            state.admit()
        upstream = await state.outward.open(place, destinations)
        try:
            await inbox.stream.send(_ESTABLISHED)
            if searched:
                await intercept(state, inbox, place, upstream)
            else:
                await _Tunnel(state, inbox.stream, upstream, place).run()
        finally:
            upstream.close()


def _place(head: Head) -> Place:
    """Read the destination of a tunnel. Raises `Refusal`."""
    try:
        place = read_authority(head.target)
        hosts = head.all(b"host")
        named = read_authority(hosts[0], place.port) if hosts else place
    except Malformed as error:
        raise Refusal(400, str(error)) from None
    if named != place:
        raise Refusal(421, "the Host header differs from the host of the tunnel")
    if head.all(b"transfer-encoding") or head.all(b"content-length") not in ([], [b"0"]):
        raise Refusal(400, "a request for a tunnel must not have a body")
    return place


class _Tunnel:
    """An opaque tunnel: only the host name in the first TLS message is read."""

    def __init__(self, state: State, client: Stream, server: Stream, place: Place) -> None:
        self._state = state
        self._client = client
        self._server = server
        self._place = place
        self._sent = 0
        self._received = 0

    async def run(self) -> None:
        """Carry bytes until both sides have closed, or one is idle for too long."""
        trouble: list[Refusal] = []
        self._state.reads(self._place)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._carry, self._up, trouble, group.cancel_scope)
                group.start_soon(self._carry, self._down, trouble, group.cancel_scope)
        finally:  # a tunnel that is open when the proxy ends is noted too
            for refusal in trouble[:1]:
                self._state.refused(self._place, None, refusal)
            if not trouble or self._sent:
                self._state.allowed(self._place, sent=self._sent, received=self._received)

    async def _carry(
        self, way: Callable[[], Awaitable[None]], trouble: list[Refusal], scope: anyio.CancelScope
    ) -> None:
        try:
            await way()
        except Ended:
            scope.cancel()
        except Refusal as refusal:
            trouble.append(refusal)
            scope.cancel()

    async def _up(self) -> None:
        first = await self._first()
        while first:
            self._sent += len(first)
            self._state.count(len(first))
            await self._server.send(first)
            first = await self._client.recv(wait_s=IDLE_S)
        self._server.finish()

    async def _first(self) -> bytes:
        """Read the first message of the client. Raises `Refusal` for TLS with another host."""
        data = await self._client.recv(wait_s=IDLE_S)
        while data:
            hello = read_hello(data)
            if not hello.sound or (hello.name and hello.name.rstrip(".") != self._place.host):
                raise Refusal(421, "the tunnel was used for TLS with a host that it was not opened for")
            if hello.complete:
                break
            more = await self._client.recv(HELLO_MAX, wait_s=HEAD_S)
            if not more:
                raise Ended("the client closed the connection inside its first message")
            data += more
        return data

    async def _down(self) -> None:
        while True:
            data = await self._server.recv(wait_s=IDLE_S)
            if not data:
                break
            self._received += len(data)
            self._state.count(len(data))
            await self._client.send(data)
            await checkpoint()
        self._client.finish()


HELLO_MAX = 64 << 10
"""Longest first message, in bytes."""

_HANDSHAKE = 0x16
_CLIENT_HELLO = 0x01
_SERVER_NAME = 0


class Hello(NamedTuple):
    """Parsed start of a client's stream: `complete` if no more bytes are needed, `name` of the host or empty.

    `tls` is False for bytes that are not TLS, and `sound` is False for TLS that cannot be parsed.
    """

    complete: bool
    name: str = ""
    tls: bool = True
    sound: bool = True


def read_hello(data: bytes) -> Hello:
    """Parse the first bytes of a client."""
    if data[:1] != bytes([_HANDSHAKE]):
        return Hello(bool(data), tls=False)
    message = b""
    left = data
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        if len(left) < 5:
            return _more(data)
        size = int.from_bytes(left[3:5])
        if left[0] != _HANDSHAKE or size == 0:
            return Hello(True, sound=False)
        if len(left) < 5 + size:
            return _more(data)
        message += left[5 : 5 + size]
        left = left[5 + size :]
    if message[0] != _CLIENT_HELLO:
        return Hello(True, sound=False)
    try:
        return Hello(True, _name(message[4 : 4 + int.from_bytes(message[1:4])]))
    except (IndexError, UnicodeDecodeError):
        return Hello(True, sound=False)


def _more(data: bytes) -> Hello:
    return Hello(False) if len(data) <= HELLO_MAX else Hello(True, sound=False)


class _Bytes:
    """Reader of consecutive fields. Raises `IndexError` at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if self._at + size > len(self._data):
            raise IndexError("the message is shorter than it says")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def number(self, size: int) -> int:
        """Return the next number."""
        return int.from_bytes(self.take(size))

    def field(self, size: int) -> bytes:
        """Return the next bytes, after a length of `size` bytes."""
        return self.take(self.number(size))


def _name(message: bytes) -> str:
    fields = _Bytes(message)
    fields.take(2 + 32)
    fields.field(1)
    fields.field(2)
    fields.field(1)
    if not fields:
        return ""
    extensions = _Bytes(fields.field(2))
    while extensions:
        kind = extensions.number(2)
        content = extensions.field(2)
        if kind == _SERVER_NAME:
            names = _Bytes(_Bytes(content).field(2))
            while names:
                if names.number(1) == 0:
                    return names.field(2).decode("ascii").lower()
                names.field(2)
    return ""
