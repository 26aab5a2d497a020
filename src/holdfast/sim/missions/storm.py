"""Course of a mission world: brains start and end, users commit and answer, the budget runs out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from holdfast.brain.doors import Doors
from holdfast.brain.wake import wake
from holdfast.errors import UsageError
from holdfast.facts.people import Verdict
from holdfast.facts.session import SessionUpdated, Workspace
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.repo.base import Owner
from holdfast.repo.repository import Commit, Conflict, FileChange, Kept, Standing
from holdfast.service.answers import Answer
from holdfast.sim.doors import ClockDoor, StoreDoor, doors_of
from holdfast.sim.missions.cast import COST_PICO, RoleDoor
from holdfast.sim.missions.scene import BASE
from holdfast.sim.missions.world import FOLLOWED, MissionWorld
from holdfast.sim.process import Process
from holdfast.sim.storm import Storm
from holdfast.sim.world import Session

T = TypeVar("T")


def mission_doors(process: Process, world: MissionWorld, session_id: str) -> Doors:
    """Return the doors of a process's brain for a session of the mission."""

    def discard(workspace: Workspace) -> None:
        if process.alive:
            world.discard(workspace)

    repository = RepositoryDoor(process, world)
    return replace(
        doors_of(process, session_id),
        model=lambda name: RoleDoor(process, world, session_id),
        prompts=dict.fromkeys(("planner", "mission_worker", "judge", "compaction", "handoff"), "Do it."),
        repository=lambda path: repository,
        workspace=lambda name, near: Workspace(world.workspace(name), True, near.user, near.isolation),
        discard=discard,
    )


class RepositoryDoor:
    """Repository of a process: every verb passes its seams, and moved refs are recorded."""

    def __init__(self, process: Process, world: MissionWorld) -> None:
        self._process = process
        self._world = world
        self._inner = world.repository

    async def _do(self, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._process.through(f"repository {verb}", ask)

    async def look(self) -> Standing:
        return await self._do("look", self._inner.look)

    async def resolve(self, name: str) -> Commit | None:
        return await self._do("resolve", lambda: self._inner.resolve(name))

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        await self._do("checkout", lambda: self._inner.checkout(commit, folder, user=user))

    async def commit(
        self,
        folder: Path,
        parents: Sequence[str],
        message: str,
        at_us: int,
        *,
        user: Owner | None = None,
        kept: Sequence[Kept] = (),
    ) -> Commit:
        return await self._do(
            "commit", lambda: self._inner.commit(folder, parents, message, at_us, user=user, kept=kept)
        )

    async def write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        return await self._do("write", lambda: self._inner.write(files, parents, message, at_us))

    async def graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        return await self._do("graft", lambda: self._inner.graft(commit, onto, paths))

    async def overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        return await self._do("overlay", lambda: self._inner.overlay(commit, files))

    async def merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        return await self._do("merge", lambda: self._inner.merge(onto, branch, message, at_us))

    async def point(self, ref: str, new: str, old: str | None) -> bool:

        async def move() -> bool:
            before = self._inner.refs.get(ref)
            moved = await self._inner.point(ref, new, old)
            if moved and before != new:
                self._world.moved(self._process.name, ref, new)
            return moved

        return await self._do("point", move)

    async def changes(self, before: str, after: str) -> list[FileChange]:
        return await self._do("changes", lambda: self._inner.changes(before, after))

    async def files(self, commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        return await self._do("files", lambda: self._inner.files(commit, paths))

    async def diff(self, before: str, after: str, *, max_bytes: int = 200_000) -> str:
        return await self._do("diff", lambda: self._inner.diff(before, after, max_bytes=max_bytes))

    async def history(self, commit: str, limit: int = 20) -> list[str]:
        return await self._do("history", lambda: self._inner.history(commit, limit))


STEPS = 120
"""Largest number of steps in bad weather before the calm."""

ANSWERS = 2
"""Largest number of approvals to continue a mission."""

ENOUGH_PICO = 100_000 * COST_PICO


class MissionStorm(Storm):
    """Driver of a mission world. `spent_first` is the spend when the mission first parked for its budget."""

    def __init__(self, world: MissionWorld) -> None:
        super().__init__(world)
        self.mission = world
        self.spent_first: int | None = None
        self.approvals = 0
        self._yes = world.scene.chance("yes").choice((None, 0, 1, ANSWERS))

    async def run(self) -> None:
        """Run the whole life of the world."""
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
        """Start a process that wakes due sessions."""
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
        """Start a process that steals a random session's lease."""
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
        """Commit to the followed branch: a harmless file, a part of the work, or a break."""
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

    # --- users in calm weather ---

    async def _settle(self) -> None:
        """Answer items and raise the budget until the mission waits for nothing."""
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
