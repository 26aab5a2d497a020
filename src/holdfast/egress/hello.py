"""The first message of a TLS client: which host it names, before anything is sent on.

A tunnel cannot be looked into. But a client that asked for one host and then names another one to the server behind
it (domain fronting) says so in its first message, and is cut off there.
"""

from __future__ import annotations

from typing import NamedTuple

HELLO_MAX = 64 << 10
"""Bytes that a first message may have."""

_HANDSHAKE = 0x16
_CLIENT_HELLO = 0x01
_SERVER_NAME = 0


class Hello(NamedTuple):
    """What is known so far: `complete` when nothing more has to come, the `name` that was given, empty for none.

    `tls` is False for bytes that are no TLS, `sound` for TLS that cannot be read.
    """

    complete: bool
    name: str = ""
    tls: bool = True
    sound: bool = True


def read_hello(data: bytes) -> Hello:
    """Read the first bytes of a client."""
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
    """Reads fields one after another. Raises `IndexError` at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if self._at + size > len(self._data):
            raise IndexError("the message is shorter than it says")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def number(self, size: int) -> int:
        """The next number."""
        return int.from_bytes(self.take(size))

    def field(self, size: int) -> bytes:
        """The next bytes, which their length goes before."""
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
