"""Messages over a byte stream: one JSON object per line, on a non-blocking descriptor."""

from __future__ import annotations

import json
import os
import select
from typing import Any

Message = dict[str, Any]

LINE_MAX = 64 * 1024 * 1024
"""Maximum bytes of one message: a longer line ends the connection."""

_CHUNK = 1 << 18


class WireError(Exception):
    """The other side sent bytes that are not a message."""


class Channel:
    """One side of a connection. It owns the descriptor and never blocks."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.closed = False
        self._in = bytearray()
        self._scanned = 0
        self._out = bytearray()

    @property
    def wants_write(self) -> bool:
        """True while something is left to send: poll for writing, then `flush`."""
        return bool(self._out) and not self.closed

    def receive(self) -> list[Message]:
        """Return all messages that have arrived. Sets `closed` at the end of the stream."""
        while True:
            try:
                chunk = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk:
                self.closed = True
                break
            self._in += chunk
            if len(self._in) > LINE_MAX:
                raise WireError(f"a message of more than {LINE_MAX} bytes")
            if len(chunk) < _CHUNK:
                break
        return self._take()

    def _take(self) -> list[Message]:
        out: list[Message] = []
        start = 0
        while True:
            end = self._in.find(b"\n", max(start, self._scanned))
            if end < 0:
                break
            out.append(_decode(bytes(self._in[start:end])))
            start = end + 1
        del self._in[:start]
        self._scanned = len(self._in)
        return out

    def send(self, message: Message) -> None:
        """Queue a message and send as much as the other side accepts now."""
        self._out += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send as much as the other side accepts now."""
        while self._out and not self.closed:
            try:
                sent = os.write(self.fd, memoryview(self._out)[:_CHUNK].tobytes())
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            del self._out[:sent]

    def hung_up(self) -> bool:
        """True if the other side has closed the connection, even if that was not read yet."""
        poll = select.poll()
        poll.register(self.fd, 0)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the descriptor. Safe to repeat."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.closed = True


def encode(message: Message) -> bytes:
    """Encode a message as its line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _decode(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a line that is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("a line that is no JSON object")
    return message
