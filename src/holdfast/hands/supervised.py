"""Hands behind a supervisor: the verbs over its socket, and its journal when it is dead (S8 to S10).

Guarantees for callers:

- For a supervisor of this boot that is proven dead (its lock is free), the journal answers: an exit is a result, a
  start without one is unknown, neither is never started.
- For another host or another boot the journal does not count: every call is unknown.
- A supervisor that lives and does not answer within the deadline (SIGSTOP) raises `HandsError` on
  every verb. Nothing is guessed about its calls; once it runs again it answers.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec

from holdfast.clock import boot_id
from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, Output
from holdfast.hands.box.agent.archive import CHUNK
from holdfast.hands.box.agent.output import piece_of
from holdfast.hands.box.processes import is_locked
from holdfast.hands.box.supervisor import mounts
from holdfast.hands.box.supervisor.journal import Testimony, replay
from holdfast.hands.host import host_id
from holdfast.hands.launch import remove_folder
from holdfast.hands.talk import ANSWER_S, Gone, Talk

_STEP_S = 0.005

_status = msgspec.json.Decoder(CallStatus).decode
_result = msgspec.json.Decoder(ExecResult).decode
_output = msgspec.json.Decoder(Output).decode

WRITE_MAX = 256 << 10
"""Bytes of input sent to the supervisor at a time."""


class _Moved(msgspec.Struct, frozen=True):
    """An answer during a tar transfer: a piece of it (base64), or its completion."""

    transfer: int = 0
    data: str = ""
    done: bool = False
    entries: int = 0


_moved = msgspec.json.Decoder(_Moved).decode


class SupervisedHands:
    """One incarnation. `folder` holds its journal and its lock; `answer_s` bounds every answer."""

    def __init__(self, identity: HandsProvisioned, folder: Path, *, answer_s: float = ANSWER_S) -> None:
        self.identity = identity
        self._folder = folder
        self._answer_s = answer_s
        self._talk = Talk(identity.address, answer_s)

    async def claim(self, epoch: int) -> None:
        """Open the connection that keeps these hands in use."""
        await self._ask("hello", epoch)

    async def fence(self, epoch: int) -> None:
        """Refuse every lower epoch from now on (S9)."""
        await self._ask("fence", epoch)

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """Start a call and return when its start is journaled. A known call id changes nothing."""
        await self._ask("start", epoch, call=call_id, request=request)

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended. Raises `HandsLost` when the incarnation dies meanwhile."""
        try:
            return _result(await self._talk.wait(epoch, call_id))
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if not isinstance(error, Gone):
                raise error from None
        status = await self.status(epoch, call_id)
        if status.result is not None:
            return status.result
        raise HandsLost(f"the hands {self.identity.hands_id} ended while call {call_id} was open")

    async def kill(self, epoch: int, call_id: str) -> None:
        """Kill a running call with all its descendants."""
        await self._ask("kill", epoch, call=call_id)

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """Return the status of a call from the supervisor, or from its journal when it is dead."""
        if not self._ours():
            return CallStatus("unknown")
        try:
            return _status(await self._poll("status", epoch, wait_s, call=call_id))
        except HandsLost:
            said = await self._testimony(epoch)
        return CallStatus("unknown") if said is None else _testified(said, call_id)

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """Return output of a call from the supervisor, or from the files that it left when it is dead."""
        fields = {"call": call_id, "after": max(0, after), "max_bytes": max_bytes}
        if self._ours():
            try:
                return _output(await self._poll("read", epoch, wait_s, **fields))
            except HandsLost:
                said = await self._testimony(epoch)
            if said is not None and call_id in said.started:
                return await anyio.to_thread.run_sync(self._left, said, call_id, max(0, after), max_bytes)
        raise HandsLost(f"the hands {self.identity.hands_id} are gone, and what call {call_id} printed with them")

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Write input to a running command, in parts that the supervisor accepts."""
        for start in range(0, max(1, len(data)), WRITE_MAX):
            part = b64encode(data[start : start + WRITE_MAX]).decode()
            last = close and start + WRITE_MAX >= len(data)
            await self._ask("write", epoch, call=call_id, data=part, offset=offset + start, close=last)

    async def pause(self, epoch: int) -> None:
        """Pause all processes of these hands."""
        await self._ask("pause", epoch)

    async def resume(self, epoch: int) -> None:
        """Resume all processes of these hands."""
        await self._ask("resume", epoch)

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder in the sandbox, a bounded piece at a time."""
        begun = _moved(await self._ask("transfer", epoch, op="pack", path=path))
        total = 0
        while True:
            moved = _moved(await self._ask("pull", epoch, transfer=begun.transfer))
            data = b64decode(moved.data)
            total += len(data)
            await anyio.to_thread.run_sync(target.write, data)
            if moved.done:
                return total

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Extract a tar into a folder in the sandbox, a bounded piece at a time."""
        begun = _moved(await self._ask("transfer", epoch, op="unpack", path=path))
        while True:
            data = await anyio.to_thread.run_sync(source.read, CHUNK)
            part = b64encode(data).decode()
            moved = _moved(await self._ask("push", epoch, transfer=begun.transfer, data=part))
            if moved.done:
                return moved.entries

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it, and delete its journal. Safe to repeat."""
        if not self._ours():
            return
        try:
            await self._ask("release", epoch)
        except HandsLost:
            pass
        self._talk.close()
        await self._until_dead()
        said = replay(str(self._journal))
        self._check(said, epoch)
        for place in said.opened.get("places", ()):
            mounts.remove_mount_point(place)
        Path(self.identity.address).unlink(missing_ok=True)
        await anyio.to_thread.run_sync(remove_folder, self._folder)

    async def _testimony(self, epoch: int) -> Testimony | None:
        """Read the journal of a dead supervisor; None if it does not belong to these hands in this boot."""
        await self._until_dead()
        said = replay(str(self._journal))
        self._check(said, epoch)
        ours = (self.identity.hands_id, self.identity.boot_id)
        return said if (said.opened.get("hands_id"), said.opened.get("boot_id")) == ours else None

    def _left(self, said: Testimony, call_id: str, after: int, max_bytes: int) -> Output:
        """Read a call's output from a dead supervisor's folder. Nothing comes after it."""
        result = said.exits.get(call_id, {}).get("result")
        folder = str(self._folder / "output")
        return Output(*piece_of(folder, call_id, after, max_bytes, result, over=True))

    @property
    def _journal(self) -> Path:
        return self._folder / "journal"

    def _ours(self) -> bool:
        """True if these hands were created on this host since its last boot, in this home: a restored one has none."""
        here = self.identity.host_id == host_id() and self.identity.boot_id == boot_id()
        return here and self._folder.exists()

    async def _ask(self, verb: str, epoch: int, **fields: object) -> msgspec.Raw:
        """Send a request to the supervisor. Raises `HandsLost` if it is proven dead."""
        return await self._poll(verb, epoch, 0.0, **fields)

    async def _poll(self, verb: str, epoch: int, wait_s: float, **fields: object) -> msgspec.Raw:
        """Request a result that may come within `wait_s`."""
        if not self._ours():
            raise HandsLost(f"the hands {self.identity.hands_id} were made on another host or before a restart of it")
        with anyio.move_on_after(self._answer_s + wait_s):
            while True:
                try:
                    return await self._talk.ask(verb, epoch, wait_s=wait_s, **fields)
                except Gone:
                    self._talk.close()
                if not self._alive():
                    raise HandsLost(f"the hands {self.identity.hands_id} are gone: their supervisor has ended")
                await anyio.sleep(_STEP_S)
        raise self._stuck()

    async def _until_dead(self) -> None:
        """Wait until an ending supervisor has ended: only then is its journal complete."""
        with anyio.move_on_after(self._answer_s):
            while self._alive():  # noqa: ASYNC110 - another process ends, which sets no event of ours
                await anyio.sleep(_STEP_S)
            return
        raise self._stuck()

    def _alive(self) -> bool:
        return is_locked(str(self._folder / "lock"))

    def _stuck(self) -> HandsError:
        return HandsError(
            f"the supervisor of the hands {self.identity.hands_id} lives but cannot be reached at "
            f"{self.identity.address}; nothing was repeated: wake the session again later"
        )

    def _check(self, said: Testimony, epoch: int) -> None:
        if epoch < said.epoch:
            raise Fenced(
                "these hands belonged to a later shift than the one that asks",
                mine=epoch,
                current=said.epoch,
            )


def _testified(said: Testimony, call_id: str) -> CallStatus:
    started = said.started.get(call_id)
    if started is None:
        return CallStatus("unknown" if said.damaged else "never_started")
    notes = said.notes.get(call_id, {})
    if call_id in said.exits:
        return msgspec.convert({"state": "finished", "result": said.exits[call_id]["result"], **notes}, CallStatus)
    return msgspec.convert({"state": "unknown", "expectation": started["expect"], **notes}, CallStatus)
