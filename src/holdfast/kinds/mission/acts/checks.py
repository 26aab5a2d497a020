"""Clean places for checks: a throw-away checkout with the files of people as they were, and hands on it (S25).

Each run has a place of its own, so that nothing that one run leaves behind decides about another. Nothing of the tree
is executed here: the files are written as data, and what runs, runs in the hands.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.acts.environment import dress_aside
from holdfast.brain.acts.jobs import stand_up
from holdfast.brain.shift import Shift
from holdfast.errors import EnvironmentFailed, Fenced, HandsError, HandsLost
from holdfast.facts.session import Service, Workspace
from holdfast.hands.base import Hands, HandsSpec
from holdfast.ids import new_hands_id
from holdfast.kinds.mission.acts.laying import Ground, Laying, read_only
from holdfast.kinds.mission.acts.roles import of_repository, owner_of, without
from holdfast.kinds.mission.contract import protected
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.kinds.mission.ratchet import planted
from holdfast.repo.repository import Repository

MAKES = 3
"""Tries to make hands that somebody ends while they start."""

IDLE_S = 10.0
"""Hands of a brain that was killed go so long after their last call."""


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

    async def laid(self, ground: Ground) -> str:
        """The tree that a checkout of that ground is: protected files as people have them, planted ones gone."""
        asked = {path for task in self._mission.tasks.values() for path in task.task.scope}
        return await self.laying.tree(ground, asked, self._mission.allowed)

    @cached_property
    def laying(self) -> Laying:
        """How trees are laid for the contract of this mission."""
        return Laying(self.repository, self._mission.contract)

    @property
    def _mission(self) -> MissionState:
        return of_mission(self.shift.state)

    @asynccontextmanager
    async def place(
        self, ground: Ground, changed: Mapping[str, bytes | None] | None = None, *, unseen: bool = False
    ) -> AsyncIterator[tuple[Place, str]]:
        """A clean checkout that goes at the end of the block, and the tree that it stands for, but for `changed` files.

        Hidden files are in it with `unseen` alone: what other checks run could print them.
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
            shown = laid if unseen else await without(self.repository, laid, self._mission.contract.hidden)
            tree = await self.repository.overlay(shown, changed) if changed else shown
            await self.repository.checkout(tree, Path(workspace.path), user=user)
            base = await self.laying.base(ground.people)
            guarded = await anyio.to_thread.run_sync(read_only, Path(workspace.path), base.guards)
            spec = msgspec.structs.replace(self._spec(workspace), guarded=guarded)
            spec, services = await dress_aside(self.shift, spec)
            spec = msgspec.structs.replace(spec, network=await egress_act.network(self.shift, workspace))
            yield Place(workspace, spec, services), laid
        except Fenced:
            mine = False
            raise
        finally:
            if mine:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self.shift.doors.discard, workspace)

    async def told(self, tree: str, output: str, *, passed: bool) -> str:
        """What is kept of the output of a hidden check: nothing that could tell what it holds."""
        if passed:
            return ""
        product = await without(self.repository, tree, self._mission.contract.hidden)
        return protected.told(output, await self.repository.files(product))

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
            env={**workspace.env, **planted.ENVIRONMENT},
            policy=msgspec.structs.replace(created.hands, warm=1, idle_s=IDLE_S),
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


def people_of(mission: MissionState, tree: str) -> str:
    """The commit whose protected files a tree is checked with: the newest one of people that the tree has in it."""
    merge = mission.merge
    if merge is not None and merge.tree == tree:
        return merge.base or mission.followed
    for task in mission.tasks.values():
        if task.tree == tree and task.pristine:
            return task.pristine
    return mission.followed


async def give_back(shift: Shift, hands: Hands) -> None:
    """Release hands; that they are gone already, or cannot be released, harms nobody."""
    with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
        await hands.release(shift.epoch)
