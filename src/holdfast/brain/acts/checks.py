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
from holdfast.brain.shift import Shift
from holdfast.errors import EnvironmentFailed, HandsError, HandsLost
from holdfast.facts.session import Service, Workspace
from holdfast.hands.base import Hands, HandsSpec
from holdfast.hands.user import choose_user
from holdfast.ids import new_hands_id
from holdfast.mission import checking, pristine
from holdfast.mission.globs import matches
from holdfast.repo.base import Owner
from holdfast.repo.repository import Repository

MAKES = 3
"""Tries to make hands that somebody ends while they start."""


class Ground(msgspec.Struct, frozen=True):
    """What is checked: a commit, its tree, and the commit of people whose protected files it is checked with."""

    commit: str
    tree: str
    people: str


class Laid(msgspec.Struct, frozen=True):
    """What a checkout of a ground consists of: a tree, less the files that are `removed`."""

    tree: str
    removed: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Stands for the pristine files in the key of a verdict."""
        return checking.pristine_digest(self.tree, self.removed)


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
        self._laid: dict[str, Laid] = {}

    async def laid(self, ground: Ground, folder: Path, user: Owner | None) -> Laid:
        """What a checkout of that ground consists of. The first one is written to `folder` to find that out."""
        known = self._laid.get(ground.tree)
        if known is not None:
            return known
        mission = self.shift.state.mission
        assert mission is not None
        changes = await self.repository.changes(ground.people, ground.tree)
        globs = (*mission.contract.protected, *pristine.ALWAYS)
        restored = [
            _literal(each.path)
            for each in changes
            if each.kind != "added" and each.path not in mission.allowed and matches(each.path, globs)
        ]
        tree = await self.repository.graft(ground.commit, ground.people, restored) if restored else ground.tree
        await self.repository.checkout(tree, folder, user=user)
        paths = await anyio.to_thread.run_sync(_walk, folder)
        added = {each.path for each in changes if each.kind == "added"}
        planted = pristine.planted(paths, (path for path in paths if path not in added))
        laid = Laid(tree, tuple(path for path in planted if path not in mission.allowed))
        self._laid[ground.tree] = laid
        return laid

    @asynccontextmanager
    async def place(self, ground: Ground) -> AsyncIterator[tuple[Place, Laid]]:
        """A clean checkout that goes at the end of the block."""
        self.count += 1
        near = self._near()
        name = f"{self.verification_id}-{self.count}"
        workspace = self.shift.doors.workspace(name, near)
        folder = Path(workspace.path)
        try:
            user = await anyio.to_thread.run_sync(_owner, workspace)
            fresh = ground.tree not in self._laid
            laid = await self.laid(ground, folder, user)
            if not fresh:
                await self.repository.checkout(laid.tree, folder, user=user)
            await anyio.to_thread.run_sync(_remove, folder, laid.removed)
            spec, services = await dress_aside(self.shift, self._spec(workspace))
            yield Place(workspace, spec, services), laid
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.shift.doors.discard, workspace)

    def _near(self) -> Workspace:
        created = self.shift.state.created
        assert created is not None
        return created.workspace

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


def _owner(workspace: Workspace) -> Owner:
    user = choose_user(workspace)
    return Owner(user.uid, user.gid)


def _literal(path: str) -> str:
    """A glob that fits a path; signs with a meaning become any one character."""
    return "".join("?" if char in "*?[]" else char for char in path)


def _walk(folder: Path) -> list[str]:
    found = []
    for top, _, names in os.walk(folder):
        inside = os.path.relpath(top, folder)
        found += [name if inside == "." else f"{inside}/{name}" for name in names]
    return sorted(found)


def _remove(folder: Path, paths: tuple[str, ...]) -> None:
    for path in paths:
        (folder / path).unlink(missing_ok=True)
