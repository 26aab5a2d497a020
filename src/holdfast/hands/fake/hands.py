"""One incarnation of in-memory hands, as `FakeProvider` creates it: its verbs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import BinaryIO

import anyio

from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, Output
from holdfast.hands.fake.calls import Call, Incarnation, Stage, packed, unpacked


class FakeHands:
    """One incarnation in memory."""

    def __init__(self, provider: Stage, identity: HandsProvisioned) -> None:
        self.identity = identity
        self._provider = provider

    async def fence(self, epoch: int) -> None:
        """Refuse every lower epoch from now on (S9)."""
        await self._living(epoch)

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """Start a call. A known call id changes nothing."""
        made = await self._living(epoch)
        if call_id not in made.calls:
            self._provider.begin(made, call_id, request)
        await anyio.lowlevel.checkpoint()

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended."""
        made = await self._known(epoch)
        call = made.calls.get(call_id)
        if call is None:
            raise self._lost(made) if made.gone else HandsError(f"call {call_id} was never started here")
        with _listening(call):
            while call.result is None:
                if made.gone:
                    raise self._lost(made)
                await self._something(call)
                self._check(made, epoch)
        return call.result

    async def _something(self, call: Call, wait_s: float = math.inf) -> None:
        """Wait until the call changes, something else is due, or that time is over."""
        changed = call.changed

        async def alarm() -> None:
            until_s = min(wait_s, self._provider.next_due())
            if until_s < math.inf:
                await self._provider.clock.sleep(max(0.0, until_s))
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(alarm)
            await changed.wait()
            group.cancel_scope.cancel()
        self._provider.settle()

    async def kill(self, epoch: int, call_id: str) -> None:
        """Kill a running call."""
        made = await self._living(epoch)
        if call_id in made.calls:
            self._provider.cancel(made, made.calls[call_id])

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """Return the status of a call."""
        await anyio.lowlevel.checkpoint()
        made = self._provider.find(self.identity)
        if made is None:
            return CallStatus("unknown")
        self._check(made, epoch)
        call = made.calls.get(call_id)
        if call is None:
            return CallStatus("never_started")
        end_s = self._provider.clock.monotonic_s() + wait_s
        with _listening(call) if wait_s > 0 else nullcontext():
            while not (status := call.status(gone=bool(made.gone))).settled:
                left_s = end_s - self._provider.clock.monotonic_s()
                if left_s <= 0:
                    break
                await self._something(call, left_s)
                self._check(made, epoch)
        return status

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """Return the output of a call from that position on."""
        made = await self._known(epoch)
        call = made.calls.get(call_id)
        if call is None:
            raise HandsError(f"call {call_id} was never started here")
        end_s = self._provider.clock.monotonic_s() + wait_s
        while True:
            output = call.output(after, max_bytes, over=not call.running)
            left_s = end_s - self._provider.clock.monotonic_s()
            if output.text or output.ended or left_s <= 0:
                return output
            await self._something(call, left_s)
            self._check(made, epoch)

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Write input to a running command."""
        made = await self._living(epoch)
        call = made.calls.get(call_id)
        if call is None:
            raise HandsError(f"call {call_id} was never started here")
        self._provider.give(made, call, data, offset, close=close)

    async def pause(self, epoch: int) -> None:
        """Pause all events of these hands."""
        self._provider.pause(await self._living(epoch))

    async def resume(self, epoch: int) -> None:
        """Resume the events of these hands."""
        self._provider.resume(await self._living(epoch))

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder."""
        made = await self._living(epoch)
        return packed(self._provider.files(made.identity.workspace), path, target)

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Extract a tar into a folder."""
        made = await self._living(epoch)
        return unpacked(self._provider.files(made.identity.workspace), path, source)

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it."""
        await anyio.lowlevel.checkpoint()
        made = self._provider.find(self.identity)
        if made is not None:
            self._check(made, epoch)
            self._provider.erase(made)

    async def _known(self, epoch: int) -> Incarnation:
        await anyio.lowlevel.checkpoint()
        made = self._provider.find(self.identity)
        if made is None:
            raise HandsLost(f"the hands {self.identity.hands_id} are gone")
        self._check(made, epoch)
        return made

    async def _living(self, epoch: int) -> Incarnation:
        made = await self._known(epoch)
        if made.gone:
            raise self._lost(made)
        return made

    def _lost(self, made: Incarnation) -> HandsLost:
        return HandsLost(f"the hands {self.identity.hands_id} are gone: {made.gone}")

    def _check(self, made: Incarnation, epoch: int) -> None:
        if epoch < made.epoch:
            raise Fenced(
                "these hands belong to a later shift than the one that asks",
                mine=epoch,
                current=made.epoch,
            )
        if not made.gone:
            made.epoch = epoch


@contextmanager
def _listening(call: Call) -> Iterator[None]:
    """Count a client that waits for news of that call."""
    call.listeners += 1
    try:
        yield
    finally:
        call.listeners -= 1
