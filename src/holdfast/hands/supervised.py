"""Hands behind a supervisor: the verbs over its socket, and its journal when it is dead (S8 to S10).

What a caller can rely on:

- A supervisor that is proven dead (its lock is free) and was of this boot testifies by its journal:
  an exit is a result, a start without one is unknown, neither is never started.
- Another host or another boot testifies to nothing: every call is unknown.
- A supervisor that lives and does not answer within the deadline (SIGSTOP) raises `HandsError` on
  every verb. Nothing is guessed about its calls; once it runs again it answers.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec

from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, FileExpectation
from holdfast.hands.box.journal import Testimony, replay
from holdfast.hands.box.kernel import drop_folder, is_locked
from holdfast.hands.host import boot_id, host_id
from holdfast.hands.launch import remove_folder
from holdfast.hands.talk import ANSWER_S, Gone, Talk

_STEP_S = 0.005

_status = msgspec.json.Decoder(CallStatus).decode
_result = msgspec.json.Decoder(ExecResult).decode


class SupervisedHands:
    """One incarnation. `folder` holds its journal and its lock; `answer_s` bounds every answer."""

    def __init__(self, identity: HandsProvisioned, folder: Path, *, answer_s: float = ANSWER_S) -> None:
        self.identity = identity
        self._folder = folder
        self._answer_s = answer_s
        self._talk = Talk(identity.address, answer_s)

    async def claim(self, epoch: int) -> None:
        """Open the connection that says that somebody needs these hands."""
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
            error = _first(group)
            if not isinstance(error, Gone):
                raise error from None
        status = await self.status(epoch, call_id)
        if status.result is not None:
            return status.result
        raise HandsLost(f"the hands {self.identity.hands_id} ended while call {call_id} was open")

    async def kill(self, epoch: int, call_id: str) -> None:
        """End a running call with all its descendants."""
        await self._ask("kill", epoch, call=call_id)

    async def status(self, epoch: int, call_id: str) -> CallStatus:
        """What is known of a call: from the supervisor, or from its journal when it is dead."""
        if not self._ours():
            return CallStatus("unknown")
        try:
            return _status(await self._ask("status", epoch, call=call_id))
        except HandsLost:
            await self._until_dead()
        said = replay(str(self._journal))
        self._check(said, epoch)
        if said.opened.get("hands_id") != self.identity.hands_id:
            return CallStatus("unknown")
        if said.opened.get("boot_id") != self.identity.boot_id:
            return CallStatus("unknown")
        return _testified(said, call_id)

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it; its journal goes with it. Safe to repeat."""
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
        for path in said.opened.get("placeholders", ()):
            drop_folder(path)
        Path(self.identity.address).unlink(missing_ok=True)
        await anyio.to_thread.run_sync(remove_folder, self._folder)

    @property
    def _journal(self) -> Path:
        return self._folder / "journal"

    def _ours(self) -> bool:
        """True when these hands were made on this host since it was started."""
        return self.identity.host_id == host_id() and self.identity.boot_id == boot_id()

    async def _ask(self, verb: str, epoch: int, **fields: object) -> msgspec.Raw:
        """Ask the supervisor. Raises `HandsLost` when it is proven dead."""
        if not self._ours():
            raise HandsLost(f"the hands {self.identity.hands_id} were made on another host or before a restart of it")
        with anyio.move_on_after(self._answer_s):
            while True:
                try:
                    return await self._talk.ask(verb, epoch, **fields)
                except Gone:
                    self._talk.close()
                if not self._alive():
                    raise HandsLost(f"the hands {self.identity.hands_id} are gone: their supervisor has ended")
                await anyio.sleep(_STEP_S)
        raise self._stuck()

    async def _until_dead(self) -> None:
        """Wait until a supervisor that is ending has ended: only then is its journal whole."""
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
                f"these hands belonged to epoch {said.epoch}, this came from epoch {epoch}",
                mine=epoch,
                current=said.epoch,
            )


def _testified(said: Testimony, call_id: str) -> CallStatus:
    if call_id in said.exits:
        return CallStatus("finished", result=msgspec.convert(said.exits[call_id]["result"], ExecResult))
    started = said.started.get(call_id)
    if started is None:
        return CallStatus("never_started")
    expect = started["expect"]
    return CallStatus("unknown", expectation=None if expect is None else msgspec.convert(expect, FileExpectation))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
