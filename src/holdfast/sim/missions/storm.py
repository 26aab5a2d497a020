"""What happens to the world of a mission: brains come and go, people commit and answer, money is short."""

from __future__ import annotations

import asyncio

from holdfast.brain.wake import wake
from holdfast.errors import UsageError
from holdfast.facts.people import Verdict
from holdfast.facts.session import SessionUpdated
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.service.answers import Answer
from holdfast.sim.doors import ClockDoor, StoreDoor
from holdfast.sim.missions.cast import COST_PICO
from holdfast.sim.missions.doors import mission_doors
from holdfast.sim.missions.scene import BASE
from holdfast.sim.missions.world import FOLLOWED, MissionWorld
from holdfast.sim.storm import Storm
from holdfast.sim.world import Session
from holdfast.sim.world_process import Process

STEPS = 120
"""What happens in bad weather at most before it is calm."""

ANSWERS = 2
"""So often people say at most that a mission is to go on."""

ENOUGH_PICO = 100_000 * COST_PICO


class MissionStorm(Storm):
    """The driver of such a world. `spent_first` is what was spent when the mission rested for money."""

    def __init__(self, world: MissionWorld) -> None:
        super().__init__(world)
        self.mission = world
        self.spent_first: int | None = None
        self.approvals = 0
        self._yes = world.scene.chance("yes").choice((None, 0, 1, ANSWERS))

    async def run(self) -> None:
        """The whole life of the world."""
        world, chance = self.mission, self.mission.chance
        world.workspace("mission")
        created = world.created()
        world.add(Session(world.mission_id, created, world.script("mission")))
        await self.people.intake.open(world.mission_id, created)
        for _ in range(0 if world.calm else STEPS):
            if not await self._due() and not any(each.alive for each in self.processes):
                break
            await self._something()
            await asyncio.sleep(chance.choice((0.01, 0.3, 1.0, 2.0, 8.0)))
        await self.calm()
        await self._settle()
        await self._look()

    async def _due(self) -> bool:
        return any(row.due_us is not None for row in await self.world.store.sessions())

    # --- brains ---

    def worker(self) -> Process:
        """A process that wakes whoever is due."""
        return self.spawn(self._serve)

    async def _serve(self, process: Process) -> None:
        world = self.mission
        dispatcher = InlineDispatcher(
            StoreDoor(process), ClockDoor(process), boot_id=process.worker.boot_id, limit=world.width
        )

        async def ring(session_id: str) -> None:
            await wake(session_id, mission_doors(process, world, session_id))

        await dispatcher.run(ring)

    def thief(self) -> Process:
        """A process that takes a session over, whoever holds it."""
        world, session_id = self.mission, self.people.any().session_id

        async def steal(process: Process) -> None:
            await wake(session_id, mission_doors(process, world, session_id), steal=True)

        return self.spawn(steal)

    # --- the storm ---

    async def _something(self) -> None:
        world, chance = self.mission, self.mission.chance
        moving = [each for each in self.processes if each.alive and not each.frozen]
        frozen = [each for each in self.processes if each.alive and each.frozen]
        draw = chance.random()
        if not moving:
            self.worker()
        elif frozen and draw < 0.5:
            self._succeed(chance.choice(frozen))
        elif world.scene.follows and draw < 0.15:
            self.commit()
        elif draw < 0.25:
            await self.trouble()

    def commit(self) -> None:
        """A person commits to the followed branch: something harmless, something of the work, or a break."""
        world, chance = self.mission, self.mission.chance
        number = len(world.human)
        draw = chance.random()
        files = {f"notes/n{number}.txt": b"seen\n"}
        if draw < 0.2:
            present = world.tree(world.repository.refs[FOLLOWED])[BASE]
            files[BASE] = b"base = 0\n" if present == b"base = 1\n" else b"base = 1\n"
        elif draw < 0.4:
            path, name, value = chance.choice([each for each in world.scene.wants.values() if each[0] != BASE])
            present = world.tree(world.repository.refs[FOLLOWED])[path]
            files[path] = present.replace(f"{name} = 0".encode(), f"{name} = {value}".encode())
        world.person_commits(files)

    # --- people, when it is calm ---

    async def _settle(self) -> None:
        """Answer what is asked and raise what is used up, until the mission needs nobody."""
        world = self.mission
        for _ in range(ANSWERS + 4):
            row = await world.store.find(world.mission_id)
            if row.status != "parked":
                return
            if row.reason == "budget" and self.spent_first is None:
                account = await world.store.account(world.mission_id)
                assert account is not None
                self.spent_first = account.spent_pico
                await self.people.intake.update(row, SessionUpdated(budget_pico=ENOUGH_PICO))
            for item in await world.store.items():
                if item.session_id == world.mission_id and item.kind != "budget":
                    await self._reply_to(item.item_id, item.kind)
            await self._until_rest()

    async def _reply_to(self, item_id: str, kind: str) -> None:
        if self._yes is None:
            return
        verdict: Verdict = "deny"
        if kind == "escalation" and self.approvals < self._yes:
            self.approvals += 1
            verdict = "approve"
        item = await self.world.store.item(item_id)
        try:
            await self.people.intake.answer(item, Answer(verdict=verdict, note="so be it"))
        except UsageError as refused:
            self.world.note("people", f"{item_id[-4:]} {verdict}: {refused}")
