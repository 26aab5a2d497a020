"""Hands in memory: the same verbs and the same semantics as real ones, on a clock of the caller's.

For tests and the simulator. Everything is a deterministic function of what was called and when. A
call's effect happens some time after its start and its end some time after that (`pace`); both are
brought about when the clock has passed them and anybody looks, in the order of their times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import anyio
import msgspec

from holdfast.clock import Clock
from holdfast.errors import Fenced, HandsError, HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import (
    CallStatus,
    Capabilities,
    ExecRequest,
    ExecResult,
    FileExpectation,
    Finding,
    Hands,
    HandsSpec,
)
from holdfast.hands.fake_files import ROOT, Effect, Files, carry_out, nothing_happens, prepared

Pace = Callable[[str, ExecRequest], tuple[float, float]]
"""Call id and request → seconds from start to effect, and from effect to the journaled end."""


def at_once(call_id: str, request: ExecRequest) -> tuple[float, float]:
    """The pace of a call that is over as soon as it starts."""
    return 0.0, 0.0


class _Call:
    def __init__(self, request: ExecRequest, expectation: FileExpectation | None, started_s: float) -> None:
        self.request = request
        self.expectation = expectation
        self.started_s = started_s
        self.running = True
        self.outcome: ExecResult | None = None
        self.result: ExecResult | None = None
        self.ended = anyio.Event()


class _Incarnation:
    def __init__(self, identity: HandsProvisioned, epoch: int) -> None:
        self.identity = identity
        self.epoch = epoch
        self.calls: dict[str, _Call] = {}
        self.gone = ""
        self.erased = False


class FakeProvider:
    """Makes hands in memory.

    `effect` is what a bash command does to the files and says; `pace` how long calls take;
    `provision_s` how long making hands takes. `workspaces` are the files by workspace path: they
    outlive the hands, as folders do.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        effect: Effect = nothing_happens,
        pace: Pace = at_once,
        provision_s: float = 0.0,
        host_id: str = "fake-host",
        boot_id: str = "fake-boot",
    ) -> None:
        self.clock = clock
        self.workspaces: dict[str, Files] = {}
        self.host_id = host_id
        self.boot_id = boot_id
        self._effect = effect
        self._pace = pace
        self._provision_s = provision_s
        self._made: dict[str, _Incarnation] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    async def probe(self) -> Capabilities:
        """Always usable; nothing real happens, so nothing needs isolation."""
        finding = Finding("sandbox", "ok", "hands in memory: nothing real happens")
        return Capabilities("fake", True, {}, (finding,))

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """A new incarnation."""
        await self.clock.sleep(self._provision_s)
        if spec.hands_id in self._made:
            raise HandsError(f"{spec.hands_id} is there already: an id of hands is used once")
        self.files(spec.workspace.path)
        identity = HandsProvisioned(
            hands_id=spec.hands_id,
            provider="fake",
            host_id=self.host_id,
            boot_id=self.boot_id,
            address=f"fake:{spec.hands_id}",
            workspace=spec.workspace.path,
            root=ROOT,
            uid=1000,
        )
        self._made[spec.hands_id] = _Incarnation(identity, epoch)
        return FakeHands(self, identity)

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """The incarnation of that event, dead or alive."""
        return FakeHands(self, identity)

    # --- for tests and the simulator ---

    def files(self, workspace: str) -> Files:
        """The files of a workspace, by their path inside."""
        return self.workspaces.setdefault(workspace, Files())

    def alive(self) -> list[str]:
        """The ids of living incarnations, in the order they were made."""
        return [hands_id for hands_id, made in self._made.items() if not made.gone]

    def lose(self, hands_id: str, reason: str = "it was killed") -> None:
        """Kill an incarnation now: what ran in it has no known end, its journal stays."""
        self.settle()
        self._end(self._made[hands_id], reason)

    def reboot(self, boot_id: str) -> None:
        """The machine restarts: every incarnation is gone and no journal counts any more."""
        self.settle()
        self.boot_id = boot_id
        for made in self._made.values():
            self._end(made, "the machine restarted")

    def settle(self) -> None:
        """Bring about everything that the clock has passed."""
        now = self.clock.monotonic_s()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()

    # --- for FakeHands ---

    def find(self, identity: HandsProvisioned) -> _Incarnation | None:
        """The incarnation as far as this machine, in this boot, can know it."""
        self.settle()
        if (identity.host_id, identity.boot_id) != (self.host_id, self.boot_id):
            return None
        made = self._made.get(identity.hands_id)
        return None if made is None or made.erased else made

    def begin(self, made: _Incarnation, call_id: str, request: ExecRequest) -> None:
        """Start a call: its effect and its end become due."""
        files = self.files(made.identity.workspace)
        expectation, refusal = prepared(request, files)
        now = self.clock.monotonic_s()
        call = made.calls[call_id] = _Call(request, expectation, now)
        if refusal is not None:
            self._finish(call, refusal)
            return
        before, after = self._pace(call_id, request)
        limit = now + request.timeout_s

        def effect() -> None:
            if call.running:
                call.outcome = carry_out(request, files, expectation, self._effect)

        def end() -> None:
            if call.running:
                assert call.outcome is not None
                self._finish(call, call.outcome)

        def timeout() -> None:
            if call.running:
                self._finish(call, ExecResult(False, "", signal=9, timed_out=True))

        self._at(now + before, effect)
        self._at(now + before + after, end)
        self._at(limit, timeout)
        self.settle()

    def next_due(self) -> float:
        """Seconds until something happens by itself; infinite when nothing will."""
        return self._due[0][0] - self.clock.monotonic_s() if self._due else math.inf

    def cancel(self, call: _Call) -> None:
        """End a running call now."""
        if call.running:
            self._finish(call, ExecResult(False, "", signal=9, cancelled=True))

    def erase(self, made: _Incarnation) -> None:
        """Take an incarnation away with its journal."""
        self._end(made, "it was released")
        made.erased = True

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, what))

    def _finish(self, call: _Call, result: ExecResult) -> None:
        took = (self.clock.monotonic_s() - call.started_s) * 1000
        call.result = msgspec.structs.replace(result, duration_ms=took)
        call.running = False
        call.ended.set()

    def _end(self, made: _Incarnation, reason: str) -> None:
        if made.gone:
            return
        made.gone = reason
        for call in made.calls.values():
            call.running = False
            call.ended.set()


class FakeHands:
    """One incarnation in memory."""

    def __init__(self, provider: FakeProvider, identity: HandsProvisioned) -> None:
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
        while True:
            call = made.calls.get(call_id)
            if call is None:
                raise self._lost(made) if made.gone else HandsError(f"call {call_id} was never started here")
            if call.result is not None:
                return call.result
            if made.gone:
                raise self._lost(made)
            await self._pause(call)
            self._provider.settle()
            self._check(made, epoch)

    async def _pause(self, call: _Call) -> None:
        """Until the call has ended or something else is due."""

        async def alarm() -> None:
            wait_s = self._provider.next_due()
            if wait_s < math.inf:
                await self._provider.clock.sleep(max(0.0, wait_s))
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(alarm)
            await call.ended.wait()
            group.cancel_scope.cancel()

    async def kill(self, epoch: int, call_id: str) -> None:
        """End a running call."""
        made = await self._living(epoch)
        if call_id in made.calls:
            self._provider.cancel(made.calls[call_id])

    async def status(self, epoch: int, call_id: str) -> CallStatus:
        """What is known of a call."""
        await anyio.lowlevel.checkpoint()
        made = self._provider.find(self.identity)
        if made is None:
            return CallStatus("unknown")
        self._check(made, epoch)
        call = made.calls.get(call_id)
        if call is None:
            return CallStatus("never_started")
        if call.result is not None:
            return CallStatus("finished", result=call.result)
        return CallStatus("unknown", expectation=call.expectation) if made.gone else CallStatus("running")

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it."""
        await anyio.lowlevel.checkpoint()
        made = self._provider.find(self.identity)
        if made is not None:
            self._check(made, epoch)
            self._provider.erase(made)

    async def _known(self, epoch: int) -> _Incarnation:
        await anyio.lowlevel.checkpoint()
        made = self._provider.find(self.identity)
        if made is None:
            raise HandsLost(f"the hands {self.identity.hands_id} are gone")
        self._check(made, epoch)
        return made

    async def _living(self, epoch: int) -> _Incarnation:
        made = await self._known(epoch)
        if made.gone:
            raise self._lost(made)
        return made

    def _lost(self, made: _Incarnation) -> HandsLost:
        return HandsLost(f"the hands {self.identity.hands_id} are gone: {made.gone}")

    def _check(self, made: _Incarnation, epoch: int) -> None:
        if epoch < made.epoch:
            raise Fenced(
                f"these hands belong to epoch {made.epoch}, this came from epoch {epoch}",
                mine=epoch,
                current=made.epoch,
            )
        if not made.gone:
            made.epoch = epoch
