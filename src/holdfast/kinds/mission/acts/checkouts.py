"""Clean checkouts for checks: the worker's tree with the base's protected files, and hands on it (S25)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
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
from holdfast.facts.mission import Contract
from holdfast.facts.session import Service, Workspace
from holdfast.globs import literal, matches
from holdfast.hands.base import Hands, HandsSpec
from holdfast.ids import new_hands_id
from holdfast.kinds.mission.acts.open_roles import of_repository, owner_of, without
from holdfast.kinds.mission.check import judging
from holdfast.kinds.mission.contract import protected
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.kinds.mission.ratchet import planted
from holdfast.kinds.mission.ratchet.additions import fixtures_asked_for, only_more
from holdfast.kinds.mission.ratchet.rules import CODE, only_longer
from holdfast.repo.repository import Repository

MOUNTS_MAX = 300
"""Most read-only files of a checkout. Each is a mount, and mounting time grows quadratically."""

IGNORES = frozenset({".gitignore", ".ignore"})
"""Names of files with paths that git and many linters skip."""


class Ground(msgspec.Struct, frozen=True):
    """Commit to check, its tree, and `people`: the commit whose protected files it is checked with."""

    commit: str
    tree: str
    people: str


class Base:
    """Files of a commit that determine the outcome of checks; `files` are those read to find them."""

    def __init__(self, contract: Contract, files: dict[str, bytes]) -> None:
        self.files = files
        self.judges = judging.judges(contract, files)
        self.own = judging.named(contract)
        self.fixtures = frozenset(
            name for path in files if planted.is_test_file(path) for name in fixtures_asked_for(files[path])
        )
        typed = (each.check.command.encode() for each in contract.criteria().values() if each.check is not None)
        self._asks = any(b".gitignore" in each for each in (*typed, *files.values()))
        self._globs = (*contract.protected, *planted.ALWAYS, *self.judges.settings, *contract.hidden)

    def ignores(self, path: str) -> bool:
        """Return True if a file could hide the product from a check, as linters skip ignored files.

        Checks see it as at the base, unless one of them is about it.
        """
        return path.rpartition("/")[2] in IGNORES and path not in self.own and not self._asks

    def guards(self, path: str) -> bool:
        """Return True if a file has the content of the base in every run."""
        return path not in self.own and (path in self.judges.files or matches(path, self._globs))


class Laying:
    """Prepares trees of checkouts for one contract."""

    def __init__(self, repository: Repository, contract: Contract) -> None:
        self.repository = repository
        self.contract = contract
        self._bases: dict[str, Base] = {}
        self._laid: dict[tuple[str, str], str] = {}

    async def tree(self, ground: Ground, asked: Collection[str] = (), allowed: Collection[str] = ()) -> str:
        """Build the tree of a checkout. `asked` are paths named by tasks, `allowed` are changes that a user allowed."""
        known = self._laid.get((ground.tree, ground.people))
        if known is None:
            paths = [literal(path) for path in await self._wrong(ground, asked) if path not in allowed]
            known = await self.repository.graft(ground.commit, ground.people, paths) if paths else ground.tree
            self._laid[ground.tree, ground.people] = known
        return known

    async def _wrong(self, ground: Ground, asked: Collection[str]) -> list[str]:
        """Paths to reset to the base, or to remove."""
        changes = await self.repository.changes(ground.people, ground.tree)
        if not changes:
            return []
        base = await self.base(ground.people)
        globs = tuple(literal(each.path) for each in changes if each.kind != "removed")
        new = await self.repository.files(ground.tree, globs) if globs else {}
        added = {each.path: new.get(each.path, b"") for each in changes if each.kind == "added"}
        wrong = list(planted.planted(added, base.files, base.judges, base.own | set(asked)))
        wrong += [path for path in added if matches(path, self.contract.hidden)]
        wrong += [each.path for each in changes if base.ignores(each.path)]
        changed = [each.path for each in changes if each.kind != "added" and base.guards(each.path)]
        old = await self.repository.files(ground.people, tuple(map(literal, changed))) if changed else {}
        return [
            *wrong,
            *(path for path in changed if not _only_added(path, old.get(path), new.get(path), base.fixtures)),
        ]

    async def base(self, people: str) -> Base:
        """Return the files of a commit that determine the outcome of checks."""
        if people not in self._bases:
            files = await self.repository.files(people, planted.STRUCTURE)
            looked: frozenset[str] = frozenset()
            while more := judging.looked_into(self.contract, files) - looked - {""}:
                looked |= more
                files |= await self.repository.files(people, tuple(map(literal, more)))
            self._bases[people] = Base(self.contract, files)
        return self._bases[people]


def read_only(folder: Path, guards: Callable[[str], bool]) -> tuple[str, ...]:
    """List the files of a checkout that its hands mount read-only.

    If there are too many, whole folders with nothing but such files are mounted, the largest first: a run cannot create
    files there. The rest stays writable; its content is that of the base at the start of each run.
    """
    found: list[str] = []
    other: set[str] = set()
    for top, _, names in os.walk(folder):
        below = os.path.relpath(top, folder)
        for name in names:
            path = name if below == "." else f"{below}/{name}"
            if guards(path):
                found.append(path)
            else:
                other |= set(_above(path))
    whole: dict[str, int] = {}
    for path in found:
        for above in _above(path):
            whole[above] = whole.get(above, 0) + (above not in other)
    folders = sorted((each for each in whole if each not in other), key=lambda each: (-whole[each], each))
    while len(found) > MOUNTS_MAX and folders:
        largest = folders.pop(0)
        found = [path for path in found if not path.startswith(f"{largest}/")] + [largest]
        folders = [each for each in folders if not each.startswith(f"{largest}/")]
    return tuple(sorted(found)[:MOUNTS_MAX])


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _only_added(path: str, old: bytes | None, new: bytes | None, fixtures: frozenset[str]) -> bool:
    """Return True if a test file only has additions: its new cases run too."""
    if old is None or new is None:
        return False
    if not path.endswith(CODE):
        return only_longer(path, old, new)
    return not only_more(path, old, new, fixtures if path.endswith("conftest.py") else ())


MAKES = 3
"""Attempts to provision hands that are lost while starting."""

IDLE_S = 10.0
"""Idle time after which the hands of a killed brain end."""


class Place(msgspec.Struct):
    """Checkout, and the spec of its hands with the services that they need."""

    workspace: Workspace
    spec: HandsSpec
    services: tuple[Service, ...]


class Places:
    """Maker of places for the runs of one verification, numbered by `count`."""

    def __init__(self, shift: Shift, repository: Repository, verification_id: str) -> None:
        self.shift = shift
        self.repository = repository
        self.verification_id = verification_id
        self.count = 0

    async def laid(self, ground: Ground) -> str:
        """Build the tree of a checkout: protected files as in the base, planted files removed."""
        asked = {path for task in self._mission.tasks.values() for path in task.task.scope}
        return await self.laying.tree(ground, asked, self._mission.allowed)

    @cached_property
    def laying(self) -> Laying:
        """Return the tree builder for this mission's contract."""
        return Laying(self.repository, self._mission.contract)

    @property
    def _mission(self) -> MissionState:
        return of_mission(self.shift.state)

    @asynccontextmanager
    async def place(
        self, ground: Ground, changed: Mapping[str, bytes | None] | None = None, *, unseen: bool = False
    ) -> AsyncIterator[tuple[Place, str]]:
        """Provide a clean checkout that is removed at the end of the block, and its tree without the `changed` files.

        Hidden files are in it only with `unseen`, since other checks could print them. After another brain took over,
        the checkout stays for its use or its sweep. The epoch in its name keeps two brains apart.
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
        """Return the part of a hidden check's output that may be recorded: nothing that reveals its content."""
        if passed:
            return ""
        product = await without(self.repository, tree, self._mission.contract.hidden)
        return protected.disclosed(output, await self.repository.files(product))

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
        """Provide hands on a place, with its environment's services. Raises `HandsError` or `EnvironmentFailed`."""
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
                return await doors.hands.provision(place.spec, self.shift.fence)
            hands_id = new_hands_id(doors.clock.now_us(), doors.entropy)
            place.spec = msgspec.structs.replace(place.spec, hands_id=hands_id)
        return await doors.hands.provision(place.spec, self.shift.fence)

    async def sweep(self, left: Path) -> None:
        """Discard the checkouts of this verification that a dead shift left behind."""
        near = self._near()
        with contextlib.suppress(OSError):
            for name in await anyio.to_thread.run_sync(os.listdir, left):
                if name.startswith(f"{self.verification_id}-"):
                    gone = Workspace(str(left / name), True, near.user, near.isolation)
                    await anyio.to_thread.run_sync(self.shift.doors.discard, gone)


def people_of(mission: MissionState, tree: str) -> str:
    """Return the commit whose protected files a tree is checked with: the newest followed commit in its history."""
    merge = mission.merge
    if merge is not None and merge.tree == tree:
        return merge.base or mission.followed
    for task in mission.tasks.values():
        if task.tree == tree and task.pristine:
            return task.pristine
    return mission.followed


async def give_back(shift: Shift, hands: Hands) -> None:
    """Release hands, ignoring those that are gone or cannot be released."""
    with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
        await hands.release(shift.fence)
