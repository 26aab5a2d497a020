"""Hands on another machine with its own Holdfast: over ssh, or over any program that carries two streams."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from holdfast.errors import HandsError, HandsUnreachable, SandboxUnavailable, UsageError, WorkspaceGone
from holdfast.facts import bounded_json
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, Capabilities, ExecRequest, ExecResult, Finding, HandsSpec, Output
from holdfast.hands.far.link import Link
from holdfast.hands.far.protocol import CHUNK, LOOK_S, Ask, Begin, Piece, Size, raised
from holdfast.hands.far.workspace import MOST, pack_folder, unpack_folder

ANSWER_S = 20.0
"""Seconds that an answer may take, beyond the wait of the verb itself."""

LONG_S = 900.0
"""Seconds that starting or ending hands, and packing a workspace, may take there."""

T = TypeVar("T")


class _Waited(msgspec.Struct, frozen=True):
    result: ExecResult | None = None


class FarEnd:
    """Requests to one far end, with typed answers."""

    def __init__(self, link: Link, spool: Path) -> None:
        self._link = link
        self.spool = spool

    async def ask(self, verb: str, kind: type[T], *, answer_s: float = ANSWER_S, epoch: int = 0, **fields: Any) -> T:
        """Send a request and return its answer. Raises the far end's error, and `HandsUnreachable`."""
        said = await self._link.ask(Ask(0, verb, epoch=epoch, **fields), answer_s=answer_s)
        if said.error is not None:
            raise raised(said.error, epoch)
        try:
            return bounded_json.decode_as(said.ok, kind)
        except msgspec.MsgspecError as error:
            text = f"the far end's answer to {verb} makes no sense ({error}); install the same Holdfast there"
            raise HandsError(text) from None

    async def send(self, source: BinaryIO, transfer: str) -> None:
        """Send a file by position: a connection lost meanwhile loses nothing."""
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
        """Delete a transfer that is no longer needed."""
        with contextlib.suppress(HandsError):  # the far end deletes it by itself a day later
            await self.ask("drop", Size, transfer=transfer)

    @asynccontextmanager
    async def spooled(self) -> AsyncIterator[tuple[Path, str]]:
        """Return a file here for a transfer, and a name for it there."""
        self.spool.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.spool, prefix="far_") as file:
            yield Path(file.name), Path(file.name).name


class FarHands:
    """One incarnation there. `HandsUnreachable` means no answer; it implies nothing about any call."""

    def __init__(self, identity: HandsProvisioned, end: FarEnd) -> None:
        self.identity = identity
        self._end = end

    async def _ask(self, verb: str, kind: type[T], epoch: int, *, answer_s: float = ANSWER_S, **fields: Any) -> T:
        return await self._end.ask(verb, kind, epoch=epoch, answer_s=answer_s, identity=self.identity, **fields)

    async def fence(self, epoch: int) -> None:
        """Refuse every lower epoch from now on (S9)."""
        await self._ask("fence", type(None), epoch)

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """Start a call and return. A known call id changes nothing, so a repeat is safe."""
        await self._ask("start", type(None), epoch, call=call_id, request=request)

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended, over as many connections as it takes."""
        while True:
            fields = {"call": call_id, "wait_s": LOOK_S}
            said = await self._ask("wait", _Waited, epoch, answer_s=LOOK_S + ANSWER_S, **fields)
            if said.result is not None:
                return said.result

    async def kill(self, epoch: int, call_id: str) -> None:
        """Kill a running call with all its descendants."""
        await self._ask("kill", type(None), epoch, call=call_id)

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """Return the status of a call there."""
        wait_s = min(wait_s, LOOK_S)
        return await self._ask("status", CallStatus, epoch, answer_s=wait_s + ANSWER_S, call=call_id, wait_s=wait_s)

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """Return the output of a call from byte `after` on."""
        wait_s = min(wait_s, LOOK_S)
        fields = {"call": call_id, "after": after, "wait_s": wait_s, "max_bytes": max_bytes}
        return await self._ask("read", Output, epoch, answer_s=wait_s + ANSWER_S, **fields)

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Write input to a running command; the offset makes a repeat safe."""
        await self._ask("write", type(None), epoch, call=call_id, data=data, offset=offset, close=close)

    async def pause(self, epoch: int) -> None:
        """Pause all processes of these hands."""
        await self._ask("pause", type(None), epoch)

    async def resume(self, epoch: int) -> None:
        """Resume all processes of these hands."""
        await self._ask("resume", type(None), epoch)

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder in the sandbox to `target`."""
        async with self._end.spooled() as (_, transfer):
            packed = await self._ask("pack", Size, epoch, answer_s=LONG_S, path=path, transfer=transfer)
            await self._end.fetch(transfer, target, packed.size)
            await self._end.drop(transfer)
            return packed.size

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Extract a tar into a folder in the sandbox."""
        async with self._end.spooled() as (_, transfer):
            await self._end.send(source, transfer)
            done = await self._ask("unpack", Size, epoch, answer_s=LONG_S, path=path, transfer=transfer)
            await self._end.drop(transfer)
            return done.size

    async def bring_back(self, epoch: int) -> None:
        """Copy the remote workspace back to its folder here, except `.git`."""
        async with self._end.spooled() as (path, transfer):
            taken = await self._ask("take", Size, epoch, answer_s=LONG_S, transfer=transfer)
            if taken.size > MOST:
                raise HandsError(f"the workspace there has {taken.size} bytes, more than is taken over ({MOST})")
            with path.open("wb") as file:
                await self._end.fetch(transfer, file, taken.size)
            await self._end.drop(transfer)
            await unpack_folder(self.identity.workspace, path)

    async def release(self, epoch: int) -> None:
        """End this incarnation, bring back its workspace, and delete it there. Safe to repeat."""
        await self._ask("release", type(None), epoch, answer_s=LONG_S)
        with contextlib.suppress(WorkspaceGone):
            await self.bring_back(epoch)
            await self._ask("forget", type(None), epoch, answer_s=LONG_S)


_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{1,5})?")

SSH_OPTIONS = (
    *("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-a", "-x"),
)
"""No terminal, no prompts, no agent and no forwarding: the far end gets no credential."""


def ssh_command(where: str, *, program: str = "ssh", serve: str = "holdfast hands serve") -> tuple[str, ...]:
    """Return the command for `[USER@]HOST[:PORT]`. Raises `UsageError` for an invalid name."""
    if not _HOST.fullmatch(where):
        raise UsageError(f"{where!r} is no host to reach by ssh; write ssh:HOST, ssh:USER@HOST or ssh:USER@HOST:PORT")
    host, _, port = where.partition(":")
    return (program, *SSH_OPTIONS, *(("-p", port) if port else ()), "--", host, serve)


class FarProvider:
    """Creates hands at the end of a link.

    `spool` is our folder for transfers; `name` appears in events, such as `ssh:build1`.
    """

    def __init__(self, link: Link, spool: Path, *, name: str) -> None:
        self._end = FarEnd(link, spool)
        self._name = name

    async def probe(self) -> Capabilities:
        """Return the result of the far end's own probe."""
        try:
            found = await self._end.ask("probe", Capabilities, answer_s=60.0)
        except HandsUnreachable as error:
            finding = Finding("hands", "bad", str(error), "see that it can be reached, for example with ssh HOST true")
            return Capabilities(self._name, False, findings=(finding,))
        works = Finding("hands", "ok", f"{self._name} answers; what follows is how it is there")
        return Capabilities(self._name, found.usable, found.isolation, (works, *found.findings))

    async def provision(self, spec: HandsSpec, epoch: int) -> FarHands:
        """Create hands there; first sends the workspace, unless the hands that `spec` continues left it there."""
        self._refuse(spec)
        async with self._end.spooled() as (path, transfer):
            begin = Begin(spec.session_id, spec.hands_id, transfer, spec.policy, spec.env, continues=spec.continues)
            if spec.continues:
                return await self._begin(begin, spec, epoch)
            await pack_folder(spec.workspace.path, path, git=True)
            with path.open("rb") as file:
                await self._end.send(file, transfer)
            try:
                return await self._begin(msgspec.structs.replace(begin, transfer=transfer), spec, epoch)
            finally:
                await self._end.drop(transfer)

    def _refuse(self, spec: HandsSpec) -> None:
        """Refuse features that exist only on this host; nothing is left out silently."""
        for wanted, what in (
            (spec.network is not None, "a way outside"),
            (bool(spec.layers or spec.files), "a prepared environment"),
            (bool(spec.read_only), "folders of this host"),
        ):
            if wanted:
                raise SandboxUnavailable(
                    f"{what} was asked for, and hands at {self._name} cannot have that; nothing was started: leave it "
                    "out of the session's policy, or use hands on this host"
                )

    async def _begin(self, begin: Begin, spec: HandsSpec, epoch: int) -> FarHands:
        made = await self._end.ask("begin", HandsProvisioned, epoch=epoch, answer_s=LONG_S, begin=begin)
        identity = msgspec.structs.replace(
            made, provider=self._name, workspace=spec.workspace.path, holds_workspace=True
        )
        return FarHands(identity, self._end)

    async def attach(self, identity: HandsProvisioned) -> FarHands:
        """Return the incarnation of that event, dead or alive. Sends no request yet."""
        return FarHands(identity, self._end)
