"""Workers that serve one home, with fewer slots than due sessions and in two versions of the program.

Here the service itself runs (`holdfast.fleet.serve`), while a storm has short-lived processes. Workers are killed and
restarted, the disk fills or is unavailable, the wall clock moves back and forth, and users open sessions and post
messages. Then comes calm: one worker of the new version must bring every session to rest.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from holdfast.brain.doors import Doors
from holdfast.brain.wake import wake
from holdfast.errors import CannotRunSafely, HoldfastError, LogUnavailable, SchemaTooNew
from holdfast.facts.codec import SCHEMA
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.session import Agent, ContextPolicy, Limits, SessionCreated, Workspace
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.fleet.serve import Service, Share
from holdfast.ids import new_session_id
from holdfast.sim.doors import ClockDoor, StoreDoor, doors_of
from holdfast.sim.loop import Stuck
from holdfast.sim.people import OWN_TOOLS
from holdfast.sim.process import Process, Weathered
from holdfast.sim.script import SaidCall, Script, Trouble, Turn
from holdfast.sim.storm import Storm
from holdfast.sim.world import CALM, World

SLEEPS_S = (2.0, 20.0, 60.0, 300.0)
JUMPS_S = (-31_536_000.0, -3_600.0, -30.0, 3_600.0)

REST_S = 4_000.0
"""Virtual seconds of calm in which everything must come to rest."""


class DiskAway(Weathered, LogUnavailable):
    """The log is unreachable now."""


class Shut(Weathered, CannotRunSafely):
    """This session is unavailable now; the log and all others are available."""


@dataclass(frozen=True)
class Failed:
    """Failure of a session, or of the log for an empty id, at a worker, and its next try."""

    at_s: float
    worker: str
    session_id: str
    error: HoldfastError
    again_s: float | None


@dataclass
class Duty:
    """Observations of the workers. `free` has the times from which a worker had room or not, `crews` the number of
    sessions at work and its limit, `left` the workers that ended by themselves. `idle` counts tries without work,
    by worker, session, and head.
    """

    free: list[tuple[float, bool]] = field(default_factory=list)
    deaths: dict[str, float] = field(default_factory=dict)
    tries: list[tuple[float, str, str]] = field(default_factory=list)
    idle: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    failed: list[Failed] = field(default_factory=list)
    crews: list[tuple[int, int]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    forward: bool = False

    def free_s(self, first_s: float, last_s: float) -> float:
        """Return the time between two moments in which a worker had room."""
        total, ends = 0.0, [at_s for at_s, _ in self.free[1:]] + [last_s]
        for (at_s, free), end_s in zip(self.free, ends, strict=True):
            if free:
                total += max(0.0, min(end_s, last_s) - max(at_s, first_s))
        return total


class _Store(StoreDoor):
    """Log for a program of one version: it may be unavailable, and refuses sessions that a newer version wrote."""

    def __init__(self, process: Process, shop: Workers, reads: int) -> None:
        super().__init__(process)
        self._shop = shop
        self._reads = reads

    def _check(self, session_id: str = "") -> None:
        if self._world.loop.time() < self._shop.away_until_s:
            raise DiskAway("the disk of this world is away")
        if self._shop.written.get(session_id, 0) > self._reads:
            raise SchemaTooNew("a newer program wrote this", session_id=session_id, seq=1)

    def _wrote(self) -> None:
        for event in self._world.store.latest:
            self._shop.wrote(event.session_id, self._reads)

    async def append(self, session_id: str, epoch: int, *args: Any, **named: Any) -> Any:
        self._check()
        events = await super().append(session_id, epoch, *args, **named)
        self._wrote()
        return events

    async def acquire(self, session_id: str, *args: Any, **named: Any) -> Any:
        self._check(session_id)
        lease = await super().acquire(session_id, *args, **named)
        self._wrote()
        return lease

    async def read(self, session_id: str, **named: Any) -> Any:
        self._check(session_id)
        return await super().read(session_id, **named)

    async def due(self, *args: Any) -> list[str]:
        self._check()
        return await super().due(*args)

    async def changed(self, after: int) -> int:
        self._check()
        return await super().changed(after)


class Workers(Storm):
    """Driver of a world of workers. In a `quiet` one, the only fault is the clock."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance
        self.duty = Duty()
        self.quiet = world.seed % 2 == 0
        self.away_until_s = 0.0
        self._shut_until_s: dict[str, float] = {}
        self.written: dict[str, int] = {}
        self._busy: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._reads: dict[str, int] = {}
        self.wanted = chance.choice((1, 1, 2, 3, 4))
        self.limit = chance.choice((1, 1, 2, 3))
        self._old = 0.0 if self.quiet else chance.choice((0.0, 0.0, 0.5))
        world.on_death = self._died
        world.weather = CALM if self.quiet else replace(world.weather, freeze=0.0, stop=0.0)

    async def run(self) -> None:
        chance = self.world.chance
        self._free()
        for number in range(chance.randint(4, 9)):
            await self._open(number)
        for _ in range(chance.randint(6, 20)):
            while len(self._living()) < self.wanted:
                self.serve(SCHEMA - (chance.random() < self._old))
            await self._something()
            await asyncio.sleep(chance.choice((0.1, 2.0, 10.0, 40.0)))
        await self.calm()
        await self._look()

    # --- workers ---

    def _living(self) -> list[str]:
        return [process.name for process in self.processes if process.alive and process.name in self._limits]

    def serve(self, reads: int) -> Process:
        """Start a worker that reads up to that schema version."""
        process = self.spawn(partial(self._serve, reads=reads))
        self._limits[process.name], self._reads[process.name], self._busy[process.name] = self.limit, reads, 0
        self._free()
        return process

    async def _serve(self, process: Process, *, reads: int) -> None:
        clock = ClockDoor(process)

        async def workers() -> tuple[list[str], list[str]]:
            names = [f"wrk_{name}" for name in self._living()]
            return names, names

        share = Share(process.worker.worker_id, workers, clock)
        service = Service(
            _Store(process, self, reads),
            clock,
            boot_id=process.worker.boot_id,
            limit=self.limit,
            on_error=partial(self._failed, process),
            share=share,
        )
        try:
            await service.run(partial(self._wake, process, reads))
        finally:
            if process.alive:
                self.duty.left.append(process.name)

    async def _wake(self, process: Process, reads: int, session_id: str) -> None:
        self.duty.tries.append((self.world.loop.time(), process.name, session_id))
        self._busy[process.name] += 1
        self.duty.crews.append((self._busy[process.name], self.limit))
        self._free()
        try:
            if self.world.loop.time() < self._shut_until_s.get(session_id, 0.0):
                raise Shut("the folder of this session cannot be reached now")
            outcome = await wake(session_id, self._doors(process, reads, session_id))
            if outcome.idle:
                self.duty.idle[process.name, session_id, outcome.state.seq] += 1
        finally:
            self._busy[process.name] -= 1
            self._free()

    def _doors(self, process: Process, reads: int, session_id: str) -> Doors:
        store = _Store(process, self, reads)
        return replace(doors_of(process, session_id), log=store, leases=store, snapshots=store)

    def _failed(self, process: Process, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        self.world.note(process.name, f"{session_id[-4:]}: {type(error).__name__}, again in {again_s}")
        self.duty.failed.append(Failed(self.world.loop.time(), process.name, session_id, error, again_s))

    def _free(self) -> None:
        """Record whether a worker could take a session of any version now."""
        now_s = self.world.loop.time()
        room = [name for name in self._living() if self._reads[name] == SCHEMA and self._busy[name] < self.limit]
        self.duty.free.append((now_s, bool(room) and now_s >= self.away_until_s))

    def wrote(self, session_id: str, version: int) -> None:
        """Record that a program of that version wrote to a session, which older ones can no longer read."""
        self.written[session_id] = max(version, self.written.get(session_id, 0))

    # --- events ---

    async def _something(self) -> None:
        chance, draw = self.world.chance, self.world.chance.random()
        if draw < 0.35:
            await self._message()
        elif draw < 0.60:
            jump_s = chance.choice(JUMPS_S[: 3 if self.world.seed % 4 < 2 else 4])
            if chance.random() < 0.5:
                await self._answered()
            self.duty.forward = self.duty.forward or jump_s > 0
            self.world.clock.jumped_us += int(jump_s * 1_000_000)
            self.world.note("world", f"the wall clock jumps by {jump_s:.0f} s")
        elif self.quiet:
            return
        elif draw < 0.75 and self._living():
            name = chance.choice(self._living())
            next(each for each in self.processes if each.name == name).kill()
        elif draw < 0.85:
            seconds = chance.choice((1.0, 10.0, 100.0))
            self.away_until_s = self.world.loop.time() + seconds
            self.world.note("world", f"the disk is away for {seconds:.0f} s")
            self._free()
            self.world.loop.call_later(seconds + 0.001, self._free)
        elif draw < 0.95:
            # No longer: a session must be taken up within its last pause, and the earlier pauses add up to as much.
            shut, seconds = self.people.any().session_id, chance.choice((1.0, 5.0, 10.0))
            self._shut_until_s[shut] = self.world.loop.time() + seconds
            self.world.note("world", f"{shut[-4:]} cannot be worked on for {seconds:.0f} s")

    async def _answered(self) -> None:
        """Wait until right after a response: a clock set then is hardest for a sleep that the response requests, and
        rare otherwise.
        """
        for _ in range(100):
            latest = {each.session_id: each.events[-1].fact for each in self.world.record.commits}
            if any(isinstance(fact, ModelRequestEnd) and fact.outcome == "ok" for fact in latest.values()):
                return
            await asyncio.sleep(0.1)

    def _died(self, worker_id: str) -> None:
        self.duty.deaths[worker_id] = self.world.loop.time()
        self._free()

    async def _message(self) -> None:
        session = self.people.any()
        await self.people._message(session, await self.people.store.find(session.session_id))
        self.wrote(session.session_id, SCHEMA)
        await self._see_to(session.session_id)

    async def _see_to(self, session_id: str) -> None:
        """Leave a session to a worker that can read it, or start a process for it, as a user's command does."""
        if any(self._reads[name] >= SCHEMA for name in self._living()):
            return

        async def job(process: Process) -> None:
            dispatcher = InlineDispatcher(
                _Store(process, self, SCHEMA), ClockDoor(process), boot_id=process.worker.boot_id, only=session_id
            )
            await dispatcher.run(lambda each: _woken(each, self._doors(process, SCHEMA, each)))

        self.spawn(job)

    async def _open(self, number: int) -> None:
        world, chance = self.world, self.world.chance
        name = "abcdefghi"[number]
        session_id = new_session_id(world.clock.now_us(), world.entropy)
        script = Script(name, chance.getrandbits(40), 0, 0.0, priced=True, wants=True)
        last = chance.randint(1, 3)
        for responses in range(last):
            script.say(responses, _turn(script, responses, world.seed))
        script.say(last, Turn("", "", f"answer {name}.{last}", (), "end_turn", 40, ()))
        created = SessionCreated(
            goal=f"work {name}",
            agent=Agent(model="sim:first", tools=(*OWN_TOOLS, "sleep")),
            workspace=Workspace(path=world.workspace(session_id), disposable=True),
            limits=Limits(max_output_tokens=1024, context=ContextPolicy(strategy="off", signs=False)),
        )
        await self.people.opened(session_id, created, script)
        self.wrote(session_id, SCHEMA - (chance.random() < self._old))

    # --- the calm ---

    async def calm(self) -> None:
        """End all faults and keep the workers until all sessions rest. Raises `Stuck` if they never do."""
        world = self.world
        world.weather = CALM
        world.stuck_until = dict.fromkeys(world.stuck_until, 0.0)
        self.away_until_s = world.loop.time()
        self._free()
        world.note("world", "calm")
        if not any(self._reads[name] == SCHEMA for name in self._living()):
            self.serve(SCHEMA)
        end_s = world.loop.time() + REST_S
        while await self._restless():
            if world.loop.time() > end_s:
                raise Stuck(f"no rest after {REST_S:.0f} s in calm weather: {', '.join(await self._restless())}")
            await asyncio.sleep(5.0)
        for process in self.processes:
            process.kill()

    async def _restless(self) -> list[str]:
        rows = await self.world.store.sessions()
        held = await self.world.store.holders()
        names = {row.session_id: f"{row.session_id[-4:]} {row.status} {row.reason}" for row in rows}
        return [names[row.session_id] for row in rows if row.due_us is not None or row.session_id in held]


async def _woken(session_id: str, doors: Doors) -> None:
    await wake(session_id, doors)


def _turn(script: Script, responses: int, seed: int) -> Turn:
    chance = Random(f"{seed} {script.name} worker {responses}")
    key = f"k{script.name}.{responses}.0"
    if chance.random() < 0.6:
        call = SaidCall("sleep", json.dumps({"seconds": chance.choice(SLEEPS_S)}))
    else:
        call = SaidCall("bash", json.dumps({"command": f"do {key} x"}), key)
    wait_s = chance.choice((None, None, 30.0, 200.0))
    troubles = () if wait_s is None else (Trouble(0, "rate_limited", wait_s),)
    return Turn("", "", f"answer {script.name}.{responses}", (call,), "tool_use", 40, troubles)
