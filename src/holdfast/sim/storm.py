"""Course of a world: sessions open, brains start and end, users post, and faults strike.

After a storm of bounded length comes calm: no more faults, zombies thaw, and due sessions are woken until none is due.
No session may become due again after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.brain.doors import uptime
from holdfast.brain.recall import encode, fold_digest
from holdfast.brain.wake import wake
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.kinds import KINDS
from holdfast.log.base import Snapshot
from holdfast.log.verify import verify
from holdfast.session.fold import empty
from holdfast.session.home import HOME
from holdfast.session.rows import due_at
from holdfast.sim.doors import ClockDoor, StoreDoor, doors_of
from holdfast.sim.loop import Stuck
from holdfast.sim.people import Persons
from holdfast.sim.process import Process
from holdfast.sim.world import CALM, Session, World

ROUNDS_MAX = 200
"""Wakes allowed in the calm after a storm."""

AT_ONCE = 3
"""Largest number of concurrent brains, not counting zombies."""


class Storm:
    """Driver of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes: list[Process] = []
        self.people = Persons(world)
        self._count = 0

    async def run(self) -> None:
        chance = self.world.chance
        await self.people.open()
        if chance.random() < 0.15:
            await self.people.open(root=next(iter(self.world.sessions)))
        for _ in range(chance.randint(6, 28)):
            await self._something()
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.1, 0.3, 0.5, 1.0, 2.0, 8.0)))
        await self.calm()
        await self._look()

    async def _look(self) -> None:
        """Read the final log and rows for the invariants."""
        store = self.world.store
        self.world.verified = await verify(store)
        self.world.beside = await store.beside()
        for session_id in (*self.world.sessions, *((HOME,) if self.world.home.head else ())):
            self.world.stored[session_id] = await store.look(lambda look, name=session_id: list(look.stored(name)))  # type: ignore[misc]
            self.world.events[session_id] = await store.read(session_id)

    # --- brains ---

    def spawn(self, job: Callable[[Process], Awaitable[None]]) -> Process:
        """Start a process."""
        self._count += 1
        process = Process(self.world, f"p{self._count}")
        self.processes = [each for each in self.processes if each.alive]
        self.processes.append(process)
        process.begin(job)
        return process

    def worker(self) -> Process:
        """Start a process that wakes due sessions."""
        return self.spawn(_serve_due)

    def thief(self) -> Process:
        """Start a process that steals a random session's lease."""
        session_id = self.people.any().session_id

        async def steal(process: Process) -> None:
            await wake(session_id, doors_of(process, session_id), steal=True)

        return self.spawn(steal)

    # --- the storm ---

    async def _something(self) -> None:
        chance = self.world.chance
        moving = [each for each in self.processes if each.alive and not each.frozen]
        frozen = [each for each in self.processes if each.alive and each.frozen]
        if not moving or (len(moving) < AT_ONCE and chance.random() < 0.3):
            self.worker()
            return
        if frozen and chance.random() < 0.6:
            self._succeed(chance.choice(frozen))
            return
        draw = chance.random()
        if draw < 0.45:
            await self.people.act()
        elif draw < 0.60:
            await asyncio.sleep(chance.choice((0.01, 1.0, 5.0, 60.0)))
        else:
            await self.trouble()

    async def trouble(self) -> None:
        """Cause one random fault."""
        chance = self.world.chance
        moving = [each for each in self.processes if each.alive and not each.frozen]
        draw = chance.uniform(0.60, 1.0)
        if draw < 0.68 and moving and self.world.weather.kill:
            chance.choice(moving).kill()
        elif draw < 0.74 and moving and self.world.weather.freeze:
            chance.choice(moving).freeze(chance.choice((5.0, 60.0, 400.0)))
        elif draw < 0.78:
            self.thief()
        else:
            self._break()

    def _succeed(self, zombie: Process) -> None:
        """Take over from a frozen process."""
        world = self.world
        if world.chance.random() < 0.5:
            world.note("world", f"{zombie.name} is taken for dead")
            world.died(zombie.worker.worker_id)
            self.worker()
        else:
            self.thief()

    def _break(self) -> None:
        world = self.world
        chance = world.chance
        draw = chance.random()
        if draw < 0.35:
            world.clock.jumped_us += int(chance.choice((-3600.0, -5.0, 5.0, 3600.0)) * 1_000_000)
            world.note("world", "the wall clock jumps")
        elif draw < 0.6 and world.weather.hands_die:
            alive = world.hands.alive()
            if alive:
                world.lose(chance.choice(alive))
        elif draw < 0.7 and world.weather.hands_die:
            for process in self.processes:
                process.kill()
            world.reboot()
        else:
            asyncio.get_running_loop().create_task(self._rot(self.people.any()))

    async def _rot(self, session: Session) -> None:
        """Save a snapshot that is not of this log, or of another program."""
        world = self.world
        state = empty(session.session_id, KINDS)
        state.seq = max(1, session.head - 1)
        state.hash = world.entropy(32)
        state.cancelled = 1
        mine = world.chance.random() < 0.5
        if not mine:
            state.hash = session.hashes[state.seq - 1]
        digest = fold_digest() if mine else "another program"
        world.note("world", "a snapshot rots")
        body = encode(state)
        await world.store.save(Snapshot(session.session_id, state.seq, state.hash, digest, body))

    # --- the calm ---

    async def calm(self) -> None:
        """End all faults and wake due sessions until all are at rest. Raises `Stuck` if they never are."""
        world = self.world
        world.weather = CALM
        world.stuck_until = dict.fromkeys(world.stuck_until, 0.0)
        world.note("world", "calm")
        await self._all_gone()
        await self.people.intake.release("calm")
        await self._until_rest()
        if world.family:
            await self.people.settle()
            await self._until_rest()

    async def _until_rest(self) -> None:
        world = self.world
        for _ in range(ROUNDS_MAX):
            await self._all_gone()
            now_us, up = world.clock.now_us(), uptime(world.clock, world.hands.boot_id)
            rows = await world.store.sessions()
            due_us = [at_us for row in rows if (at_us := due_at(row, now_us, up)) is not None]
            if not due_us:
                return
            wait_s = (min(due_us) - now_us) / 1_000_000
            if wait_s > 0:
                await asyncio.sleep(wait_s + 0.001)
            self.worker()
        raise Stuck(f"no rest after {ROUNDS_MAX} wakes in calm weather")

    async def _all_gone(self) -> None:
        """Thaw frozen processes, and wait until every process has ended."""
        for process in self.processes:
            process.thaw()
        tasks = [process.task for process in self.processes if process.task is not None and not process.task.done()]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=100_000.0)
            if left:
                raise Stuck("a brain does not come to an end in calm weather")


async def _serve_due(process: Process) -> None:
    dispatcher = InlineDispatcher(
        StoreDoor(process), ClockDoor(process), boot_id=process.worker.boot_id, limit=process.world.width
    )

    async def ring(session_id: str) -> None:
        await wake(session_id, doors_of(process, session_id))

    await dispatcher.run(ring)
