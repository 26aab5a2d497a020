"""Requests to a supervisor: one request and one answer at a time on each connection."""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from typing import Any

import anyio
import msgspec

from holdfast.errors import Fenced, HandsError, HandsLost, StorageFull

ANSWER_S = 10.0
"""Seconds that a living supervisor may take to answer. A stopped one (SIGSTOP) never does."""


class Gone(Exception):
    """No process listens at the other end of the socket."""


class _Trouble(msgspec.Struct, frozen=True):
    kind: str
    message: str
    current: int = 0


_NOTHING = msgspec.Raw(b"null")


class Reply(msgspec.Struct, frozen=True):
    """An answer or an error."""

    id: int
    ok: msgspec.Raw = _NOTHING
    error: _Trouble | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Reply).decode


class _Line:
    """One connection. Its descriptor is closed with its last reference."""

    def __init__(self, address: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(address)
        except BlockingIOError:
            sock.close()
            raise HandsError(f"the supervisor of the hands at {address} takes no more connections") from None
        except OSError as error:
            sock.close()
            raise Gone(f"{address}: {error.strerror}") from None
        self._fd = sock.detach()
        self.close = weakref.finalize(self, os.close, self._fd)

    async def ask(self, line: bytes) -> bytes:
        """Send a line and return the answer's line. Raises `Gone`."""
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._fd)
            except OSError as error:
                raise Gone(str(error)) from None
        said = bytearray()
        while not said.endswith(b"\n"):
            await anyio.wait_readable(self._fd)
            try:
                chunk = os.read(self._fd, 1 << 18)
            except BlockingIOError:
                continue
            except OSError as error:
                raise Gone(str(error)) from None
            if not chunk:
                raise Gone("the connection ended")
            said += chunk
        return bytes(said)


class Talk:
    """Requests to one supervisor. A connection stays open between them: it is our claim on the hands."""

    def __init__(self, address: str, answer_s: float = ANSWER_S) -> None:
        self._address = address
        self._answer_s = answer_s
        self._free: list[_Line] = []
        self._asked = 0

    async def ask(self, verb: str, epoch: int, *, wait_s: float = 0.0, **fields: Any) -> msgspec.Raw:
        """Send a request and return the answer within the deadline, which `wait_s` extends.

        Raises `Gone` without a listener, `HandsError` if the listener does not answer, and the error that the
        supervisor's refusal names.
        """
        try:
            if wait_s > 0:
                fields["wait_s"] = wait_s
            with anyio.fail_after(self._answer_s + wait_s):
                return await self._ask(verb, epoch, fields)
        except TimeoutError:
            raise HandsError(
                f"the supervisor of the hands is alive and has not answered for {self._answer_s:.0f} s; it may be "
                "stopped (SIGSTOP) or the machine overloaded. Nothing was repeated; wake the session again later"
            ) from None

    async def wait(self, epoch: int, call_id: str) -> msgspec.Raw:
        """Wait for a result without a time limit; checks now and then that a supervisor still listens."""
        out: list[msgspec.Raw] = []

        async def look() -> None:
            while True:
                await anyio.sleep(self._answer_s)
                await self.ask("hello", epoch)

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            out.append(await self._ask("wait", epoch, {"call": call_id}))
            group.cancel_scope.cancel()
        return out[0]

    async def _ask(self, verb: str, epoch: int, fields: dict[str, Any]) -> msgspec.Raw:
        self._asked += 1
        line = _encode({"id": self._asked, "verb": verb, "epoch": epoch, **fields}) + b"\n"
        kept = bool(self._free)
        connection = self._free.pop() if kept else _Line(self._address)
        try:
            reply = _decode(await connection.ask(line))
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)
        if reply.error is not None:
            raise _raised(reply.error, epoch)
        return reply.ok

    def close(self) -> None:
        """Close the connections, which ends the claim."""
        for connection in self._free:
            connection.close()
        self._free.clear()


def _raised(trouble: _Trouble, epoch: int) -> Exception:
    match trouble.kind:
        case "fenced":
            return Fenced(trouble.message, mine=epoch, current=trouble.current)
        case "lost":
            return HandsLost(trouble.message)
        case "full":
            return StorageFull(trouble.message)
        case "no":
            return HandsError(trouble.message)
        case _:
            return HandsError(f"the supervisor of the hands refused: {trouble.message}")


def is_there(address: str) -> bool:
    """True if a supervisor listens at that address."""
    with contextlib.suppress(Gone):
        _Line(address).close()
        return True
    return False
