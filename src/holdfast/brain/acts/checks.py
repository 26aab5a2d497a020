"""Clean places for checks: a throw-away checkout with the files of people as they were, and hands on it (S25).

Each run has a place of its own, so that nothing that one run leaves behind decides about another. Nothing of the tree
is executed here: the files are written as data, and what runs, runs in the hands.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from holdfast.brain.acts.environment import dress_aside
from holdfast.brain.acts.jobs import stand_up
from holdfast.brain.acts.roles import of_repository, owner_of
from holdfast.brain.shift import Shift
from holdfast.errors import EnvironmentFailed, Fenced, HandsError, HandsLost
from holdfast.facts.session import Service, Workspace
from holdfast.hands.base import Hands, HandsSpec
from holdfast.ids import new_hands_id
from holdfast.mission import pristine
from holdfast.mission.globs import matches
from holdfast.repo.repository import Repository

MAKES = 3
"""Tries to make hands that somebody ends while they start."""

STRUCTURE = ("**/__init__.py", "**/test_*.py", "**/*_test.py")
"""Files that say what is a package, and from where tests import."""


class Ground(msgspec.Struct, frozen=True):
    """What is checked: a commit, its tree, and the commit of people whose protected files it is checked with."""

    commit: str
    tree: str
    people: str


class Place(msgspec.Struct):
    """A checkout, and the spec of hands on it with the services that they need."""

    workspace: Workspace
    spec: HandsSpec
    services: tuple[Service, ...]


class Places:
    """Makes places for the runs of one verification, numbered by `count`."""

    def __init__(self, shift: Shift, repository: Repository, verification_id: str) -> None:
        self.shift = shift
        self.repository = repository
        self.verification_id = verification_id
        self.count = 0
        self._laid: dict[str, str] = {}

    async def laid(self, ground: Ground) -> str:
        """The tree that a checkout of that ground is: protected files as people have them, planted ones gone."""
        known = self._laid.get(ground.tree)
        if known is None:
            wrong = await self._wrong(ground)
            paths = [_literal(path) for path in wrong]
            known = await self.repository.graft(ground.commit, ground.people, paths) if paths else ground.tree
            self._laid[ground.tree] = known
        return known

    async def _wrong(self, ground: Ground) -> list[str]:
        """Paths that are to be as people have them, or not there at all."""
        mission = self.shift.state.mission
        assert mission is not None
        globs = (*mission.contract.protected, *pristine.ALWAYS)
        changes = await self.repository.changes(ground.people, ground.tree)
        added = [each.path for each in changes if each.kind == "added"]
        changed = [each.path for each in changes if each.kind != "added" and matches(each.path, globs)]
        known: list[str] = []
        if any(path.endswith(pristine.SUFFIXES) for path in added):
            known = list(await self.repository.files(ground.tree, STRUCTURE))
        planted = pristine.planted({*added, *known}, set(known) - set(added))
        return [path for path in (*changed, *planted) if path not in mission.allowed]

    @asynccontextmanager
    async def place(self, ground: Ground) -> AsyncIterator[tuple[Place, str]]:
        """A clean checkout that goes at the end of the block, and the tree that it is.

        It stays when another brain took over: that may wait for the run that goes on there, and sweeps what is left.
        Two brains that do not know of each other yet have two folders.
        """
        self.count += 1
        name = f"{self.verification_id}-{self.shift.epoch}-{self.count}"
        workspace = self.shift.doors.workspace(name, self._near())
        mine = True
        try:
            laid = await self.laid(ground)
            user = await anyio.to_thread.run_sync(owner_of, self.shift, workspace)
            await self.repository.checkout(laid, Path(workspace.path), user=user)
            spec, services = await dress_aside(self.shift, self._spec(workspace))
            yield Place(workspace, spec, services), laid
        except Fenced:
            mine = False
            raise
        finally:
            if mine:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.shift.doors.discard, workspace)

    def _near(self) -> Workspace:
        created = self.shift.state.created
        assert created is not None
        return of_repository(created)

    def _spec(self, workspace: Workspace) -> HandsSpec:
        doors, created = self.shift.doors, self.shift.state.created
        assert created is not None
        return HandsSpec(
            session_id=self.shift.state.session_id,
            hands_id=new_hands_id(doors.clock.now_us(), doors.entropy),
            workspace=workspace,
            read_only=workspace.read_only,
            env={**workspace.env, **pristine.ENVIRONMENT},
            policy=created.hands,
        )

    async def hands(self, place: Place) -> Hands:
        """Hands on a place, with the services of its environment. Raises `HandsError` or `EnvironmentFailed`."""
        hands = await self._provision(place)
        try:
            for service in place.services:
                problem = await stand_up(self.shift, hands, service)
                if problem:
                    raise EnvironmentFailed(f"the service {service.name} of the environment is not ready. {problem}")
        except BaseException:
            await give_back(self.shift, hands)
            raise
        return hands

    async def _provision(self, place: Place) -> Hands:
        doors = self.shift.doors
        for _ in range(MAKES - 1):
            with contextlib.suppress(HandsLost):
                return await doors.hands.provision(place.spec, self.shift.epoch)
            hands_id = new_hands_id(doors.clock.now_us(), doors.entropy)
            place.spec = msgspec.structs.replace(place.spec, hands_id=hands_id)
        return await doors.hands.provision(place.spec, self.shift.epoch)

    async def sweep(self, left: Path) -> None:
        """Discard what a shift that died left of this verification."""
        near = self._near()
        with contextlib.suppress(OSError):
            for name in await anyio.to_thread.run_sync(os.listdir, left):
                if name.startswith(f"{self.verification_id}-"):
                    gone = Workspace(str(left / name), True, near.user, near.isolation)
                    await anyio.to_thread.run_sync(self.shift.doors.discard, gone)


async def give_back(shift: Shift, hands: Hands) -> None:
    """Release hands; that they are gone already, or cannot be released, harms nobody."""
    with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
        await hands.release(shift.epoch)


def _literal(path: str) -> str:
    """A glob that fits a path; signs with a meaning become any one character."""
    return "".join("?" if char in "*?[]" else char for char in path)
