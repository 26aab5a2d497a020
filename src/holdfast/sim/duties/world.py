"""Simulated world of some duties: clock, weather, two brains, users, and firings that are played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import anyio

from holdfast.brain.doors import Doors, Worker
from holdfast.brain.wake import wake
from holdfast.errors import HoldfastError, LeaseHeld
from holdfast.facts.codec import Draft, Event
from holdfast.facts.duty import (
    MANUAL,
    Duty,
    Schedule,
    Trigger,
    TriggerDead,
    TriggerFired,
    TriggerOffered,
    TriggerReplayed,
    ValueReported,
)
from holdfast.facts.people import ApprovalDecided, UserPause, UserResume
from holdfast.facts.session import Agent, People, SessionCreated, Workspace
from holdfast.facts.shift import ChildCancelled, ChildFinished, ParkReason
from holdfast.facts.union import AnyFact
from holdfast.hands.fake.provider import FakeProvider
from holdfast.ids import new_event_id, new_session_id
from holdfast.kinds import DUTY, KINDS
from holdfast.log.base import Post
from holdfast.log.memory import MemoryStore
from holdfast.session.rows import Uptime, due_at, is_due, item_key
from holdfast.sim.duties.calendar import PATTERNS, SECOND_US, ZONES
from holdfast.sim.loop import VirtualLoop

SPRING_US, AUTUMN_US = 1_773_700_000_000_000, 1_791_900_000_000_000
"""Beginnings of worlds: in March and October 2026, before the clocks of the zones change."""

DAY_S = 86_400.0
YEAR_US = 365 * 86_400 * SECOND_US
LOOK_S = 300.0
"""Longest time between two looks of a brain for due duties."""

SOURCE = "hook"


class Killed(BaseException):
    """The process of a brain was killed."""


STEPS = 10_000
"""Most rounds of the loop for a day of a duty; about 2,000 are usual."""


class Clock:
    """Wall clock that can be set, and a monotonic clock."""

    def __init__(self, loop: VirtualLoop, start_us: int) -> None:
        self._loop, self.start_us, self.set_us = loop, start_us, 0

    def now_us(self) -> int:
        return self.start_us + self.set_us + int(self._loop.time() * SECOND_US)

    def monotonic_s(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Seams:
    """Log of one brain: before and after each call, the brain may be killed or frozen."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._brain.world.store, name)

        async def call(*values: Any, **named: Any) -> Any:
            await self._brain.seam()
            result = await verb(*values, **named)
            await self._brain.seam()
            return result

        return call


@dataclass
class Child:
    """A firing that is played: `cancelled` is set when its duty cancels it."""

    duty_id: str
    firing: int
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False


class World:
    """All that the processes of one seed share. `size` duties live for `days`; a `calm` world has no weather."""

    def __init__(self, seed: int, size: int, days: int, *, calm: bool = False) -> None:
        self.chance = Random(f"holdfast duties {seed}")
        self.loop = VirtualLoop(Random(self.chance.getrandbits(64)), steps_max=STEPS * size * days)
        self.clock = Clock(self.loop, self.chance.choice((SPRING_US, AUTUMN_US)))
        self.entropy = Random(self.chance.getrandbits(64)).randbytes
        self.store = MemoryStore(self.clock, self.entropy)
        self.size, self.days, self.calm = size, days, calm
        self.boots, self.is_on, self.over = 1, True, False
        self.duties: dict[str, Duty] = {}
        self.logs: dict[str, list[Event]] = {}
        self.children: dict[str, Child] = {}
        self.accepted: dict[str, set[str]] = {}
        self.kills = self.zombies = self.brains = 0
        self.errors: list[str] = []
        self.kill_rate = 0.0 if calm else self.chance.choice((0.0, 0.002, 0.01))
        self.freeze_rate = 0.0 if calm else self.chance.choice((0.0, 0.001))

    # --- life ---

    async def live(self) -> None:
        """Add the duties, let the days pass, and wait until all is calm again."""
        for number in range(self.size):
            await self._add(number)
        async with anyio.create_task_group() as group:
            for name in ("a", "b"):
                group.start_soon(self._keep_brain, name)
            if not self.calm:
                group.start_soon(self._weather)
            for duty_id in self.duties:
                group.start_soon(self._users, duty_id)
            await anyio.sleep(self.days * DAY_S)
            self.kill_rate = self.freeze_rate = 0.0
            await anyio.sleep(2 * 3_600)
            self.over = True
            group.cancel_scope.cancel()
        for duty_id in self.duties:
            await self.follow(duty_id)  # what was accepted since the last look

    async def _add(self, number: int) -> None:
        duty_id = new_session_id(self.clock.now_us() + number, self.entropy)
        duty = draw_duty(self.chance, number)
        self.duties[duty_id], self.logs[duty_id], self.accepted[duty_id] = duty, [], set()
        created = SessionCreated(
            goal="g", agent=Agent("m", DUTY), workspace=Workspace("/w", True), key=duty.name, duty=duty,
            people=People(remind_s=0, escalate_s=0),
        )  # fmt: skip
        await self.store.post(self.post(duty_id, "created", created), create=True)

    def post(self, session_id: str, key: str, fact: AnyFact) -> Post:
        """Draft the post of a fact."""
        return Post(session_id, key, Draft(new_event_id(self.clock.now_us(), self.entropy), "user:ann", fact))

    async def _keep_brain(self, name: str) -> None:
        while True:
            if self.is_on:
                self.brains += 1
                await Brain(self, f"{name}{self.brains}").live()
            await anyio.sleep(self.chance.uniform(1, 60))

    async def _weather(self) -> None:
        """Set the clock, and switch the machine off, at random times."""
        marks = sorted(self.chance.uniform(0.3, max(1.0, self.days - 4.0)) for _ in range(5))
        what = ["back", "forward", "year", "off", "back"]
        self.chance.shuffle(what)
        began_s = self.loop.time()
        for mark, each in zip(marks, what, strict=True):
            await anyio.sleep(max(0.0, began_s + mark * DAY_S - self.loop.time()))
            match each:
                case "back" | "forward":
                    self.clock.set_us += 3_600 * SECOND_US * (1 if each == "forward" else -1)
                case "year":
                    self.clock.set_us += YEAR_US
                    await anyio.sleep(self.chance.uniform(60, 20_000))
                    self.clock.set_us -= YEAR_US
                case _:
                    self.is_on = False
                    await anyio.sleep(min(3.0, self.days / 3) * DAY_S)
                    self.boots += 1
                    self.is_on = True

    async def _users(self, duty_id: str) -> None:
        """Answer items, pause and resume, ask for firings, send events, and replay dead ones."""
        number, chance = 0, Random(self.chance.getrandbits(64))
        while True:
            await anyio.sleep(chance.uniform(0.02, 0.6) * DAY_S)
            number += 1
            for item in [each for each in await self.store.items() if each.session_id == duty_id]:
                verdict = chance.choice(("approve", "approve", "deny"))
                decided = ApprovalDecided(item_id=item.item_id, verdict=cast(Any, verdict))
                await self.store.post(self.post(duty_id, item_key(item.item_id), decided))
                if verdict == "deny":
                    await anyio.sleep(chance.uniform(60, 40_000))
                    await self.store.post(self.post(duty_id, f"resume:{number}", UserResume()))
            if chance.random() < 0.1:
                await self.store.post(self.post(duty_id, f"pause:{number}", UserPause()))
                await anyio.sleep(chance.uniform(60, 90_000))
                await self.store.post(self.post(duty_id, f"resumed:{number}", UserResume()))
            if chance.random() < 0.1:
                await self._offer(duty_id, MANUAL, f"now:{number}")
            if self.duties[duty_id].triggers:
                for event in range(chance.choice((0, 1, 2, 9))):
                    for _ in range(chance.choice((1, 2))):  # deliveries repeat
                        await self._offer(duty_id, SOURCE, f"{number}.{event}")
            dead = [key for each in self.logs[duty_id][-200:] if isinstance(each.fact, TriggerDead)
                    for key in each.fact.keys]  # fmt: skip
            if dead and chance.random() < 0.5:
                await self.store.post(self.post(duty_id, f"replay:{number}", TriggerReplayed(keys=(dead[-1],))))

    async def _offer(self, duty_id: str, trigger: str, key: str) -> None:
        fact = TriggerOffered(trigger=trigger, key=key, time_us=self.clock.now_us())
        await self.store.post(self.post(duty_id, f"offer:{trigger}:{key}", fact))
        self.accepted[duty_id].add(key)

    # --- firings ---

    async def follow(self, duty_id: str) -> None:
        """Read what a duty's log has by now, and play the firings that it opened."""
        log = self.logs[duty_id]
        for event in await self.store.read(duty_id, after=len(log)):
            if event.seq != len(log) + 1:
                continue  # the other brain has read it meanwhile
            log.append(event)
            match event.fact:
                case TriggerFired(firing=firing, child_id=child_id):
                    self.children[child_id] = Child(duty_id, firing)
                    self.loop.create_task(self._play(child_id))
                case ChildCancelled(child_id=child_id) if child_id in self.children:
                    self.children[child_id].cancelled.set()

    async def _play(self, child_id: str) -> None:
        child, chance = self.children[child_id], self.chance
        lasts_s = chance.choice((20.0, 300.0, 300.0, 2_000.0, 12_000.0, 1e7)) * chance.uniform(0.5, 1.0)
        ends: list[tuple[Any, ParkReason | None, str]] = [("done", None, "well")] * 12
        ends += [("failed", None, ""), ("parked", "cap", ""), ("done", None, "")]
        status, reason, summary = chance.choice(ends)
        if summary:
            fact = ValueReported(firing=child.firing, name="n", value=1.0)
            await self.store.post(self.post(child.duty_id, f"value:{child_id}", fact))
        with anyio.move_on_after(lasts_s):
            await child.cancelled.wait()
            status, reason, summary = "cancelled", None, ""
        await self._finish(child_id, status, reason, summary)
        if status == "parked":
            await child.cancelled.wait()
            await self._finish(child_id, "cancelled", None, "")

    async def _finish(self, child_id: str, status: Any, reason: ParkReason | None, summary: str) -> None:
        fact = ChildFinished(child_id=child_id, status=status, reason=reason, summary=summary)
        await self.store.post(self.post(self.children[child_id].duty_id, f"child:{child_id}:{status}", fact))


class Brain:
    """A process that wakes due duties until it is killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive = world, name, True
        self.boot = f"boot-{world.boots}"
        self.worker = Worker(f"wrk_{name}", "fake-host", self.boot, 1, "sim")
        world.store.worker_lives(self.worker.worker_id)

    async def seam(self) -> None:
        """Pass a point at which the process may be killed or frozen."""
        world = self.world
        if self.alive and world.is_on and world.chance.random() < world.freeze_rate:
            world.zombies += 1
            await anyio.sleep(world.chance.choice((5.0, 400.0, 4_000.0)))
        if not self.alive or not world.is_on or world.chance.random() < world.kill_rate:
            self.alive = False
            raise Killed

    async def live(self) -> None:
        """Look for due duties, and wake them, until the process dies."""
        try:
            while True:
                await self.seam()
                await anyio.sleep(await self._round() + self.world.chance.uniform(0.1, 20))
        except Killed:
            self.world.kills += 1
        finally:
            self.alive = False
            self.world.store.worker_died(self.worker.worker_id)

    async def _round(self) -> float:
        """Wake the duties that are due. Return the seconds until the next one is, at most `LOOK_S`."""
        world, waits = self.world, [LOOK_S]
        now_us, up = world.clock.now_us(), Uptime(self.boot, int(world.clock.monotonic_s() * SECOND_US))
        holders = await world.store.holders()
        for duty_id in world.duties:
            row = world.store._row(duty_id)
            steals = duty_id in holders and world.chance.random() < 0.02
            if is_due(row, now_us, up) and (duty_id not in holders or steals):
                try:
                    await wake(duty_id, self._doors(), steal=steals)
                except LeaseHeld:
                    pass
                except HoldfastError as error:
                    world.errors.append(f"{type(error).__name__}: {error}")
            if row.head > len(world.logs[duty_id]) or is_due(row, now_us, up):
                await world.follow(duty_id)
            at_us = due_at(world.store._row(duty_id), now_us, up)
            if at_us is not None and at_us > now_us:
                waits.append((at_us - now_us) / SECOND_US)
        return min(waits)

    def _doors(self) -> Doors:
        world, store = self.world, cast(Any, Seams(self))
        return Doors(
            log=store, leases=store, snapshots=store, hands=FakeProvider(world.clock), model=lambda name: None,  # type: ignore[arg-type,return-value]  # a duty asks no model
           
            clock=world.clock, entropy=world.entropy, worker=self.worker, prompt="", kinds=KINDS,
        )  # fmt: skip


def draw_duty(chance: Random, number: int) -> Duty:
    """Draw a definition."""
    pattern, every_s = chance.choice(PATTERNS), chance.choice((3_600, 6 * 3_600, 43_200, 86_400))
    schedule = Schedule(
        every_s=every_s if number % 2 else 0,
        cron="" if number % 2 else pattern.cron,
        zone=chance.choice(ZONES),
        misfire=chance.choice(("skip", "once", "all")),
        grace_s=chance.choice((60.0, 600.0)),
        jitter_s=chance.choice((0.0, 0.0, 300.0)),
    )
    return Duty(
        name=f"duty-{number}",
        schedule=schedule,
        overlap=chance.choice(("skip", "queue", "cancel")),
        queue_max=chance.choice((2, 5, 20)),
        batch=chance.choice((1, 1, 2)),
        batch_s=chance.choice((0.0, 1_800.0)),
        timeout_s=chance.choice((1_800.0, 21_600.0)),
        failures_max=chance.choice((1, 3)),
        triggers=(Trigger(SOURCE, "webhook", 0),) if chance.random() < 0.5 else (),
    )
