"""The far end over standard input and output: asks come in lines, answers go out in lines, each as it is ready."""

from __future__ import annotations

import os

import anyio
import msgspec

from holdfast.facts import nesting
from holdfast.hands.far.server import FarServer
from holdfast.hands.far.wire import LINE_MAX, Answer, Ask, Trouble

OPEN_MAX = 256
"""Asks that wait for their answer at one time; more are read later."""

_encode = msgspec.json.Encoder().encode


async def serve_stdio(server: FarServer, source: int, target: int) -> None:
    """Answer until `source` ends. Both descriptors are made non-blocking; hands live on after it (see `Lives`)."""
    for fd in (source, target):
        os.set_blocking(fd, False)
    await _Conversation(server, source, target).run()


class _Conversation:
    def __init__(self, server: FarServer, source: int, target: int) -> None:
        self._server = server
        self._source = source
        self._target = target
        self._writing = anyio.Lock()
        self._room = anyio.Semaphore(OPEN_MAX)

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            kept = bytearray()
            while chunk := await self._chunk():
                kept += chunk
                if len(kept) > LINE_MAX:
                    break
                *lines, rest = bytes(kept).split(b"\n") if b"\n" in chunk else [bytes(kept)]
                kept = bytearray(rest)
                for line in lines:
                    await self._room.acquire()
                    group.start_soon(self._one, line)
            group.cancel_scope.cancel()

    async def _chunk(self) -> bytes:
        while True:
            try:
                return os.read(self._source, 1 << 18)
            except BlockingIOError:
                await anyio.wait_readable(self._source)
            except OSError:
                return b""

    async def _one(self, line: bytes) -> None:
        try:
            try:
                answer = await self._server.answer(nesting.decode_as(line, Ask))
            except msgspec.MsgspecError as error:
                answer = Answer(_id_of(line), error=Trouble("usage", f"an ask that makes no sense here ({error})"))
            await self._say(_encode(answer) + b"\n")
        finally:
            self._room.release()

    async def _say(self, line: bytes) -> None:
        left = memoryview(line)
        async with self._writing:
            while left:
                try:
                    left = left[os.write(self._target, left) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._target)
                except OSError:
                    return  # nobody reads any more: the end of the source says so too


class _Numbered(msgspec.Struct):
    id: int = 0


def _id_of(line: bytes) -> int:
    try:
        return nesting.decode_as(line, _Numbered).id
    except msgspec.MsgspecError:
        return 0
