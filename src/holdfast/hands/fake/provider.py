"""In-memory hands: the same verbs and the same semantics as real ones, on the caller's clock.

For tests and the simulator. Everything is a deterministic function of the calls and their times. A call's effect
happens some time after its start and its end some time after that (`pace`); both happen at the first query after the
clock has passed them, in the order of their times.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HandsError
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import (
    Capabilities,
    ExecRequest,
    ExecResult,
    Finding,
    Hands,
    HandsSpec,
)
from holdfast.hands.fake.calls import (
    COMMANDS,
    ROOT,
    Call,
    Due,
    Effect,
    Files,
    Incarnation,
    carry_out,
    nothing_happens,
    prepared,
)
from holdfast.hands.fake.hands import FakeHands

Pace = Callable[[str, ExecRequest], tuple[float, float]]
"""Call id and request → seconds from start to effect, and from effect to the journaled end."""


READY_S = 60.0
"""Default for the seconds that a service may take to become ready."""


def at_once(call_id: str, request: ExecRequest) -> tuple[float, float]:
    """The pace of a call that ends as soon as it starts."""
    return 0.0, 0.0


News = Callable[[str, str, str], None]
"""Callback when a job has news and no client waits: session id, call id, and `line`, `exit` or `lost`."""


class FakeProvider:
    """Creates in-memory hands.

    `effect` defines a command's changes to the files and its output; `pace` how long calls take; `provision_s` how long
    creating hands takes. `workspaces` are the files by workspace path: they outlive the hands, as folders do. `on_news`
    is called in place of the command of that name.

    A job takes the time that its pace gives it, hours if need be: `next_due` returns the time to the next event,
    `settle` processes the events that the clock has passed. A command with input finds it in `/dev/stdin` and has its
    effect when its input is closed, at the earliest. A service whose command's effect is not 0 ends with it; any other
    continues, whatever its pace says after the effect, and runs its health command then and every second until that is
    0.
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
        on_news: News | None = None,
    ) -> None:
        self.clock = clock
        self.workspaces: dict[str, Files] = {}
        self.host_id = host_id
        self.boot_id = boot_id
        self._effect = effect
        self._pace = pace
        self._provision_s = provision_s
        self._made: dict[str, Incarnation] = {}
        self._on_news = on_news
        self._due: list[Due] = []
        self._count = 0

    async def probe(self) -> Capabilities:
        """Return a usable result; nothing real happens, so nothing needs isolation."""
        finding = Finding("sandbox", "ok", "hands in memory: nothing real happens")
        return Capabilities("fake", True, {}, (finding,))

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Create a new incarnation."""
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
            isolation={"network": "hard"},
        )
        self._made[spec.hands_id] = Incarnation(identity, epoch, spec.session_id)
        return FakeHands(self, identity)

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """Return the incarnation of that event, dead or alive."""
        return FakeHands(self, identity)

    # --- for tests and the simulator ---

    def files(self, workspace: str) -> Files:
        """Return the files of a workspace, by their path inside the sandbox."""
        return self.workspaces.setdefault(workspace, Files())

    def alive(self) -> list[str]:
        """Return the ids of living incarnations, in the order of their creation."""
        return [hands_id for hands_id, made in self._made.items() if not made.gone]

    def lose(self, hands_id: str, reason: str = "it was killed") -> None:
        """Kill an incarnation now: its running calls have no known end, its journal stays."""
        self.settle()
        self._end(self._made[hands_id], reason)

    def reboot(self, boot_id: str) -> None:
        """Restart the machine: every incarnation is gone and no journal counts any more."""
        self.settle()
        self.boot_id = boot_id
        for made in self._made.values():
            self._end(made, "the machine restarted", news="")

    def settle(self) -> None:
        """Process all events up to the current time of the clock."""
        now = self.clock.monotonic_s()
        while self._due and self._due[0].when_s <= now:
            heapq.heappop(self._due).what()

    def next_due(self) -> float:
        """Return the seconds until the next event; infinite if there is none."""
        return self._due[0].when_s - self.clock.monotonic_s() if self._due else math.inf

    # --- for FakeHands ---

    def find(self, identity: HandsProvisioned) -> Incarnation | None:
        """Return the incarnation as far as this machine, in this boot, can know it."""
        self.settle()
        if (identity.host_id, identity.boot_id) != (self.host_id, self.boot_id):
            return None
        made = self._made.get(identity.hands_id)
        return None if made is None or made.erased else made

    def begin(self, made: Incarnation, call_id: str, request: ExecRequest) -> None:
        """Start a call: schedules its effect and its end."""
        if made.paused_s is not None:
            raise HandsError("these hands are paused; resume them before something is started")
        name = request.input.get("name")
        if request.tool == "service" and any(
            other.running and other.request.tool == "service" and other.request.input.get("name") == name
            for other in made.calls.values()
        ):
            raise HandsError(f"a service {name!r} runs here already; stop it first, or choose another name")
        files = self.files(made.identity.workspace)
        expectation, refusal = prepared(request, files)
        now = self.clock.monotonic_s()
        call = made.calls[call_id] = Call(call_id, request, expectation, now)
        if refusal is not None:
            self._finish(made, call, refusal)
            return
        before, after = self._pace(call_id, request)
        self._at(made, now + before, lambda: self._affect(made, call, now + before))
        self._at(made, now + before + after, lambda: self._conclude(made, call))
        if request.tool != "service":
            self._at(made, now + request.timeout_s, lambda: self._cut(made, call))
        self.settle()

    def give(self, made: Incarnation, call: Call, data: bytes, offset: int, *, close: bool) -> None:
        """Write input to a call. The last of it may trigger the call's effect."""
        if call.give(data, offset, close=close) and call.held_s is not None:
            self._affect(made, call, self.clock.monotonic_s())
            _, after = self._pace(call.call_id, call.request)
            self._at(made, self.clock.monotonic_s() + after, lambda: self._conclude(made, call))
            self.settle()

    def cancel(self, made: Incarnation, call: Call) -> None:
        """End a running call now."""
        if call.running:
            self._finish(made, call, ExecResult(False, call.printed.decode(), signal=9, cancelled=True))

    def pause(self, made: Incarnation) -> None:
        """Pause all events of these hands."""
        if made.paused_s is None:
            made.paused_s = self.clock.monotonic_s()
            made.held = [due for due in self._due if due.made is made]
            self._due = [due for due in self._due if due.made is not made]
            heapq.heapify(self._due)

    def resume(self, made: Incarnation) -> None:
        """Resume the events of these hands, delayed by the length of the pause."""
        if made.paused_s is not None:
            late_s = self.clock.monotonic_s() - made.paused_s
            made.paused_s = None
            for due in made.held:
                heapq.heappush(self._due, due._replace(when_s=due.when_s + late_s))
            made.held = []

    def erase(self, made: Incarnation) -> None:
        """Remove an incarnation with its journal."""
        self._end(made, "it was released", news="")
        made.erased = True

    def _affect(self, made: Incarnation, call: Call, when_s: float) -> None:
        if not call.running:
            return
        if not call.closed:
            call.held_s = when_s
            return
        files = self.files(made.identity.workspace)
        if call.given:
            files["/dev/stdin"] = call.given
        call.outcome = carry_out(call.request, files, call.expectation, self._effect)
        files.pop("/dev/stdin", None)
        if call.request.tool in COMMANDS and call.prints(call.outcome.output):
            self._news(made, call, "line")
        call.tell()
        if call.request.tool == "service" and call.outcome.ok and call.ready:
            self._examine(made, call, when_s)

    def _examine(self, made: Incarnation, call: Call, when_s: float) -> None:
        """Run the health command, now and every second, until it succeeds or the time is over."""
        if not call.running or call.ready != "waiting":
            return
        given = call.request.input
        code, said = self._effect(given["health"], self.files(made.identity.workspace))
        if code == 0:
            call.ready = "yes"
            call.tell()
        elif when_s >= (end_s := call.started_s + float(given.get("ready_s", READY_S))):
            call.ready, call.problem = "no", f"it was not ready in time; its health command said: {said}"
            call.tell()
        else:
            next_s = min(when_s + 1.0, end_s)
            self._at(made, next_s, lambda: self._examine(made, call, next_s))

    def _conclude(self, made: Incarnation, call: Call) -> None:
        if call.running and call.outcome is not None and (call.request.tool != "service" or not call.outcome.ok):
            self._finish(made, call, call.outcome)

    def _cut(self, made: Incarnation, call: Call) -> None:
        if call.running:
            self._finish(made, call, ExecResult(False, call.printed.decode(), signal=9, timed_out=True))

    def _at(self, made: Incarnation, when_s: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, Due(when_s, self._count, what, made))

    def _finish(self, made: Incarnation, call: Call, result: ExecResult) -> None:
        took = (self.clock.monotonic_s() - call.started_s) * 1000
        call.result = msgspec.structs.replace(result, duration_ms=took)
        call.running = False
        if call.ready == "waiting":
            call.ready, call.problem = "no", "it ended before it was ready"
        self._news(made, call, "exit")
        call.tell()

    def _news(self, made: Incarnation, call: Call, news: str) -> None:
        if call.request.tool == "job" and self._on_news is not None and not call.listeners:
            self._on_news(made.session_id, call.call_id, news)

    def _end(self, made: Incarnation, reason: str, news: str = "lost") -> None:
        if made.gone:
            return
        made.gone = reason
        for call in made.calls.values():
            if call.running and news:
                self._news(made, call, news)
            call.running = False
            call.tell()


__all__ = ["READY_S", "FakeHands", "FakeProvider", "Pace", "at_once"]
