"""Byte streams over non-blocking sockets, with or without TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl

import anyio
from anyio.lowlevel import checkpoint

CHUNK = 1 << 18
"""Largest number of bytes read at once."""

RECORD = 1 << 14
"""Longest TLS record, in bytes."""

HANDSHAKE_S = 15.0
"""Time limit of a TLS handshake, in seconds."""

SEND_S = 600.0
"""Time limit for the peer to accept more bytes, in seconds."""

LINGER_S = 2.0
LINGER_CHUNKS = 64


class Ended(Exception):
    """The peer closed the connection, or TLS failed."""


class Silent(Ended):
    """No bytes came within the time limit."""


class Stream:
    """One connection, which owns its socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    async def recv(self, size: int = CHUNK, *, wait_s: float | None = None) -> bytes:
        """Receive at most `size` bytes; empty at the end. Raises `Ended`, or `Silent` after `wait_s`."""
        try:
            data = self._take(size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            data = None
        if data is not None:
            await checkpoint()
            return data
        with anyio.move_on_after(wait_s):
            return await self._recv_later(size)
        raise Silent("no bytes came in time")

    async def _recv_later(self, size: int) -> bytes:
        while True:
            await self._until_readable()
            try:
                return self._take(size)
            except ssl.SSLWantWriteError:
                await self._until_writable()
            except (BlockingIOError, ssl.SSLWantReadError):
                continue

    def _take(self, size: int) -> bytes:
        try:
            return self._take_all(size) if isinstance(self.sock, ssl.SSLSocket) else self.sock.recv(size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError as error:
            raise Ended(str(error)) from None

    def _take_all(self, size: int) -> bytes:
        """Read all TLS records that have arrived, since one is too little work for a turn of the event loop."""
        parts = [self.sock.recv(min(size, RECORD))]
        left = size - len(parts[0])
        with contextlib.suppress(BlockingIOError, ssl.SSLError):
            while parts[-1] and left >= RECORD:
                parts.append(self.sock.recv(RECORD))
                left -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def send(self, data: bytes | memoryview) -> None:
        """Send all bytes. Raises `Ended`."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view[:CHUNK]) :]
            except ssl.SSLWantReadError:
                await self._until_readable()
            except (BlockingIOError, ssl.SSLWantWriteError):
                await self._until_writable()
            except OSError as error:
                raise Ended(str(error)) from None

    async def start_tls(self, context: ssl.SSLContext, *, server: bool, name: str | None = None) -> None:
        """Switch to TLS. Raises `Ended` if the handshake fails or takes too long."""
        try:
            self.sock = context.wrap_socket(
                self.sock, server_side=server, server_hostname=name, do_handshake_on_connect=False
            )
            with anyio.fail_after(HANDSHAKE_S):
                await self._handshake(self.sock)
        except TimeoutError:
            raise Ended("the TLS handshake took too long") from None
        except (OSError, ValueError) as error:
            raise Ended(_words(error)) from None

    async def _handshake(self, sock: ssl.SSLSocket) -> None:
        while True:
            try:
                sock.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._until_readable()
            except ssl.SSLWantWriteError:
                await self._until_writable()

    def is_quiet(self) -> bool:
        """Return True for an open connection without unread bytes."""
        try:
            self._take(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except (Ended, ssl.SSLWantWriteError):
            return False
        return False

    def finish(self) -> None:
        """Close the sending side; the peer may still send."""
        with contextlib.suppress(OSError, ValueError):
            if isinstance(self.sock, ssl.SSLSocket):
                self.sock.unwrap()
            else:
                self.sock.shutdown(socket.SHUT_WR)

    async def linger(self) -> None:
        """Keep reading for a moment after the last bytes, so that the peer reads them before the connection closes.

        Reads under TLS: OpenSSL refuses data that comes after our end of it.
        """
        self.finish()
        with anyio.move_on_after(LINGER_S), contextlib.suppress(Ended, OSError):
            for _ in range(LINGER_CHUNKS):
                await self._until_readable()
                if not socket.socket.recv(self.sock, CHUNK):
                    return

    def close(self) -> None:
        """Close the connection. Safe to repeat."""
        if isinstance(self.sock, ssl.SSLSocket):
            self.finish()
        with contextlib.suppress(OSError):
            self.sock.close()

    async def _until_readable(self) -> None:
        try:
            await anyio.wait_readable(self.sock)
        except (OSError, ValueError, anyio.ClosedResourceError) as error:
            raise Ended(str(error)) from None

    async def _until_writable(self) -> None:
        try:
            with anyio.fail_after(SEND_S):
                await anyio.wait_writable(self.sock)
        except (OSError, ValueError, anyio.ClosedResourceError) as error:
            raise Ended(str(error)) from None


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({(error.reason or 'unknown').lower().replace('_', ' ')})"
    return str(error)
