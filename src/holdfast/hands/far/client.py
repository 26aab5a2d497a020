"""Hands elsewhere, asked through a link: the same verbs as hands here, and the workspace sent and brought back."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from holdfast.errors import HandsError, WorkspaceGone
from holdfast.facts import nesting
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, Output
from holdfast.hands.far.carry import MOST, unpack_folder
from holdfast.hands.far.link import Link
from holdfast.hands.far.wire import CHUNK, LOOK_S, Ask, Piece, Size, raised

ANSWER_S = 20.0
"""How long an answer may take, beside what the verb itself waits for."""

LONG_S = 900.0
"""How long hands may take to start or end, and a workspace to be packed, there."""

T = TypeVar("T")


class _Waited(msgspec.Struct, frozen=True):
    result: ExecResult | None = None


class FarEnd:
    """Asks of one far end, with their answers as what they are."""

    def __init__(self, link: Link, spool: Path) -> None:
        self._link = link
        self.spool = spool

    async def ask(self, verb: str, kind: type[T], *, answer_s: float = ANSWER_S, epoch: int = 0, **fields: Any) -> T:
        """Raises what the far end raised, and `HandsUnreachable`."""
        said = await self._link.ask(Ask(0, verb, epoch=epoch, **fields), answer_s=answer_s)
        if said.error is not None:
            raise raised(said.error, epoch)
        try:
            return nesting.decode_as(said.ok, kind)
        except msgspec.MsgspecError as error:
            text = f"the far end's answer to {verb} makes no sense ({error}); install the same Holdfast there"
            raise HandsError(text) from None

    async def send(self, source: BinaryIO, transfer: str) -> None:
        """Send a file by position: a connection that is lost meanwhile loses nothing."""
        offset = 0
        while data := source.read(CHUNK):
            done = await self.ask("put", Size, transfer=transfer, offset=offset, data=data)
            offset += len(data)
            if done.size != offset:
                raise HandsError(f"the far end has {done.size} bytes of a transfer that has {offset}; try again")
        if not offset:
            await self.ask("put", Size, transfer=transfer)

    async def fetch(self, transfer: str, target: BinaryIO, size: int) -> None:
        """Fetch a transfer by position."""
        offset = 0
        while offset < size:
            piece = await self.ask("get", Piece, transfer=transfer, offset=offset)
            if not piece.data or offset + len(piece.data) > size:
                raise HandsError("the far end has another transfer than it said; try again")
            target.write(piece.data)
            offset += len(piece.data)

    async def drop(self, transfer: str) -> None:
        """It is needed no more."""
        with contextlib.suppress(HandsError):  # given up there by itself, a day later
            await self.ask("drop", Size, transfer=transfer)

    @asynccontextmanager
    async def spooled(self) -> AsyncIterator[tuple[Path, str]]:
        """A file here for a transfer, and a name for it there."""
        self.spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.spool, prefix="far_") as file:
            yield Path(file.name), Path(file.name).name


class FarHands:
    """One incarnation there. `HandsUnreachable` says that nobody answers; it is no testimony about any call."""

    def __init__(self, identity: HandsProvisioned, end: FarEnd) -> None:
        self.identity = identity
        self._end = end

    async def _ask(self, verb: str, kind: type[T], epoch: int, *, answer_s: float = ANSWER_S, **fields: Any) -> T:
        return await self._end.ask(verb, kind, epoch=epoch, answer_s=answer_s, identity=self.identity, **fields)

    async def fence(self, epoch: int) -> None:
        """Refuse every lower epoch from now on (S9)."""
        await self._ask("fence", type(None), epoch)

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """Start a call and return. A known call id changes nothing, so it is safe to ask again."""
        await self._ask("start", type(None), epoch, call=call_id, request=request)

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended, over as many connections as it takes."""
        while True:
            fields = {"call": call_id, "wait_s": LOOK_S}
            said = await self._ask("wait", _Waited, epoch, answer_s=LOOK_S + ANSWER_S, **fields)
            if said.result is not None:
                return said.result

    async def kill(self, epoch: int, call_id: str) -> None:
        """End a running call with all its descendants."""
        await self._ask("kill", type(None), epoch, call=call_id)

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """What is known of a call there."""
        wait_s = min(wait_s, LOOK_S)
        return await self._ask("status", CallStatus, epoch, answer_s=wait_s + ANSWER_S, call=call_id, wait_s=wait_s)

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """What a call printed from byte `after` on."""
        wait_s = min(wait_s, LOOK_S)
        fields = {"call": call_id, "after": after, "wait_s": wait_s, "max_bytes": max_bytes}
        return await self._ask("read", Output, epoch, answer_s=wait_s + ANSWER_S, **fields)

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Give a running command input; the offset makes a repeat one."""
        await self._ask("write", type(None), epoch, call=call_id, data=data, offset=offset, close=close)

    async def pause(self, epoch: int) -> None:
        """Stop everything that runs there where it is."""
        await self._ask("pause", type(None), epoch)

    async def resume(self, epoch: int) -> None:
        """Let it go on."""
        await self._ask("resume", type(None), epoch)

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder inside to `target`."""
        async with self._end.spooled() as (_, transfer):
            packed = await self._ask("pack", Size, epoch, answer_s=LONG_S, path=path, transfer=transfer)
            await self._end.fetch(transfer, target, packed.size)
            await self._end.drop(transfer)
            return packed.size

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Put a tar into a folder inside."""
        async with self._end.spooled() as (_, transfer):
            await self._end.send(source, transfer)
            done = await self._ask("unpack", Size, epoch, answer_s=LONG_S, path=path, transfer=transfer)
            await self._end.drop(transfer)
            return done.size

    async def bring_back(self, epoch: int) -> None:
        """Make the workspace's folder here what it is there, but for `.git`."""
        async with self._end.spooled() as (path, transfer):
            taken = await self._ask("take", Size, epoch, answer_s=LONG_S, transfer=transfer)
            if taken.size > MOST:
                raise HandsError(f"the workspace there has {taken.size} bytes, more than is taken over ({MOST})")
            with path.open("wb") as file:
                await self._end.fetch(transfer, file, taken.size)
            await self._end.drop(transfer)
            await unpack_folder(self.identity.workspace, path)

    async def release(self, epoch: int) -> None:
        """End this incarnation, bring back what it leaves, and have it forgotten there. Safe to repeat."""
        await self._ask("release", type(None), epoch, answer_s=LONG_S)
        with contextlib.suppress(WorkspaceGone):
            await self.bring_back(epoch)
            await self._ask("forget", type(None), epoch, answer_s=LONG_S)
