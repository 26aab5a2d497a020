"""The doors of a process that works on a simulated mission: the repository, folders, the models of its roles."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from holdfast.brain.doors import Doors
from holdfast.facts.session import Workspace
from holdfast.repo.base import Owner
from holdfast.repo.repository import Commit, Conflict, FileChange, Kept, Standing
from holdfast.sim.doors import doors_of
from holdfast.sim.missions.cast import RoleDoor
from holdfast.sim.missions.world import MissionWorld
from holdfast.sim.world_process import Process

T = TypeVar("T")


def mission_doors(process: Process, world: MissionWorld, session_id: str) -> Doors:
    """What a brain of that process is given for a session."""

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
    """The repository, as a process reaches it: every verb passes its seams, and moves of refs are observed."""

    def __init__(self, process: Process, world: MissionWorld) -> None:
        self._process = process
        self._world = world
        self._inner = world.repository

    async def _do(self, verb: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._process.through(f"repository {verb}", ask)

    async def look(self) -> Standing:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("look", self._inner.look)

    async def resolve(self, name: str) -> Commit | None:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("resolve", lambda: self._inner.resolve(name))

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        """See `holdfast.repo.repository.Repository`."""
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
        """See `holdfast.repo.repository.Repository`."""
        return await self._do(
            "commit", lambda: self._inner.commit(folder, parents, message, at_us, user=user, kept=kept)
        )

    async def write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("write", lambda: self._inner.write(files, parents, message, at_us))

    async def graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("graft", lambda: self._inner.graft(commit, onto, paths))

    async def overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("overlay", lambda: self._inner.overlay(commit, files))

    async def merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("merge", lambda: self._inner.merge(onto, branch, message, at_us))

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """See `holdfast.repo.repository.Repository`."""

        async def move() -> bool:
            before = self._inner.refs.get(ref)
            moved = await self._inner.point(ref, new, old)
            if moved and before != new:
                self._world.moved(self._process.name, ref, new)
            return moved

        return await self._do("point", move)

    async def changes(self, before: str, after: str) -> list[FileChange]:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("changes", lambda: self._inner.changes(before, after))

    async def files(self, commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("files", lambda: self._inner.files(commit, paths))

    async def diff(self, before: str, after: str, *, max_bytes: int = 200_000) -> str:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("diff", lambda: self._inner.diff(before, after, max_bytes=max_bytes))

    async def history(self, commit: str, limit: int = 20) -> list[str]:
        """See `holdfast.repo.repository.Repository`."""
        return await self._do("history", lambda: self._inner.history(commit, limit))
