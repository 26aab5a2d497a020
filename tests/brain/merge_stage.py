"""A main line on a stage: branches of a plan that are queued, the conductor's own steps for merging, done one by one.

The repository is in memory, or real; hands are in memory and see the files of a checkout. A check is written in a small
language that `effect` reads: `has 'PATH WORD'` passes when the file holds the word, `lacks` when it does not.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.facts.codec import Draft
from holdfast.facts.mission import (
    Check,
    Contract,
    Criterion,
    CriterionChecked,
    Item,
    Mission,
    MissionPlanned,
    MissionPolicy,
    Task,
)
from holdfast.facts.session import Agent, Environment, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.task import CheckProbed, TaskHandedIn, TaskInspected, TaskQueued, TaskStarted
from holdfast.hands.fake.calls import ROOT, Effect, Files
from holdfast.hands.fake.provider import FakeProvider, Pace, at_once
from holdfast.ids import new_event_id, system_entropy
from holdfast.kinds import KINDS
from holdfast.kinds.mission.acts import merging, verifying
from holdfast.kinds.mission.conductor import merges
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Open, Verify
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.repo.fake_repository import FakeRepository
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.repository import Commit, Repository
from holdfast.session.actions import Record
from holdfast.sim.missions.world import Folders
from tests.brain.stage import Stage
from tests.support.waiting import PATIENCE_S


def effect(command: str, files: Files) -> tuple[int, str]:
    """`has` and `lacks`, one after the other: `has a.txt ok` `b.txt ok` are the tests of one command."""
    verb, *given = command.replace("'", "").split()
    if verb == "true":
        return 0, "fine\n"
    pairs = list(zip(given[::2], given[1::2], strict=True))
    bad = [path for path, word in pairs if (word.encode() in files.get(f"{ROOT}/{path}", b"")) != (verb == "has")]
    return (1, "".join(f"FAILED {path} \n" for path in bad)) if bad else (0, f"{len(pairs)} passed\n")


class DiskHands(FakeProvider):
    """Hands in memory on real folders: what was checked out when they were made is what their commands see."""

    def files(self, workspace: str) -> Files:
        """The files of a folder, read when they are first asked for."""
        if workspace not in self.workspaces:
            known = self.workspaces[workspace] = Files()
            top = Path(workspace)
            for path in sorted(each for each in top.rglob("*") if each.is_file()):
                known[f"{ROOT}/{path.relative_to(top)}"] = path.read_bytes()
        return self.workspaces[workspace]


def criterion(name: str, path: str, word: str, *, guard: bool = False) -> Criterion:
    """Passes when a file holds a word; those with the same verb can be run together."""
    return Criterion(name, f"{path} says {word}", Check("has", (f"{path} {word}",)), guard=guard)


def contract_of(criteria: Iterable[Criterion], protected: tuple[str, ...] = ("tests/**",)) -> Contract:
    """One item for each of them."""
    return Contract("a line", tuple(Item(each.id, each.text, criteria=(each,)) for each in criteria), protected)


class MergeStage:
    """A mission whose tasks have branches. With `real`, a folder with a repository `repo`, its checkouts are files.

    Unless `measured` is off, it is recorded that no check was seen to fail before the work: none is probed then.
    """

    def __init__(
        self,
        contract: Contract,
        files: Mapping[str, bytes] | None = None,
        *,
        policy: MissionPolicy | None = None,
        checks: Effect = effect,
        pace: Pace = at_once,
        real: Path | None = None,
        follow: str = "",
        environment: Environment | None = None,
        measured: bool = True,
    ) -> None:
        self.environment = environment or Environment()
        self.measured = measured
        self.stage = Stage([], effect=checks, pace=pace)
        self.store = self.stage.store
        self.mission_id = self.stage.session_id
        self.contract = contract
        self.policy = policy or MissionPolicy(hooks=False, judge="off", confirm_runs=1)
        self.follow = follow
        self.real = real
        self.verified = 0
        self.hands: FakeProvider = self.stage.hands
        self.folders = Folders(self.hands.workspaces)
        self.fake = FakeRepository(self.folders)
        self.line: Repository = self.fake
        if real is None:
            self.fake.seed(files or {})
        else:
            self.line = GitRepository(real / "repo", real / "state")
            self.hands = DiskHands(self.stage.clock, effect=checks, pace=pace)
        self.doors = replace(
            self.stage.doors,
            hands=self.hands,
            repository=lambda path: self.line,
            workspace=self._folder,
            discard=self._gone,
        )
        self.base = Commit("", "")

    def _folder(self, session_id: str, near: Workspace) -> Workspace:
        if self.real is None:
            self.hands.files(f"/made/{session_id}")
            return Workspace(f"/made/{session_id}", True, near.user, near.isolation, origin=near.origin)
        path = self.real / "made" / session_id
        path.mkdir(parents=True)
        return Workspace(str(path), True, near.user, near.isolation, origin=near.origin)

    def _gone(self, workspace: Workspace) -> None:
        self.hands.workspaces.pop(workspace.path, None)
        if self.real is not None:
            shutil.rmtree(workspace.path, ignore_errors=True)

    async def begin(self, *tasks: Task) -> Shift:
        """Open the mission for real, with this plan, and hold it."""
        found = await self.line.resolve("refs/heads/main")
        assert found is not None
        self.base = found
        mission = Mission("demo", "/repo", found.commit, self.contract, self.follow, self.policy)
        created = SessionCreated(
            goal=self.contract.goal,
            agent=Agent("scripted"),
            workspace=Workspace("/repo"),
            mission=mission,
            environment=self.environment,
        )
        await self.stage.intake.open(self.mission_id, created)
        shift = await self.hold()
        await merging.open_mission(shift, Open())
        await shift.fact(MissionPlanned(tasks=tasks), *(self._unable() if self.measured else ()))
        return shift

    def _unable(self) -> list[CheckProbed]:
        """Checks that were not seen to fail anywhere: none of them is probed."""
        none = {"canary": "impossible", "flip": "impossible", "data": "impossible", "hollow": "no"}
        return [CheckProbed(name, self.base.tree, "", **none) for name in self.contract.criteria()]  # type: ignore[arg-type]

    async def hold(self) -> Shift:
        """Take the mission's lease, as the next brain does."""
        state, bodies = await recall(self.mission_id, self.store, self.store, KINDS)
        who = self.doors.worker
        fact = ShiftStarted(who.worker_id, who.host_id, who.boot_id, who.pid, who.program)
        draft = Draft(new_event_id(self.stage.clock.now_us(), system_entropy), "brain", fact)
        lease = await self.store.acquire(self.mission_id, draft, steal=True)
        shift = Shift(self.doors, state, lease, bodies)
        await shift.refresh()
        return shift

    async def facts(self, kind: type[Any]) -> list[Any]:
        """The facts of one type, in order."""
        return [event.fact for event in await self.store.read(self.mission_id) if isinstance(event.fact, kind)]

    async def branch(self, files: Mapping[str, bytes | None], on: Commit | None = None, words: str = "work") -> Commit:
        """A commit with these files changed, None for one that goes, on the base or another commit."""
        start = on or await self.line.resolve("refs/heads/main")
        assert start is not None
        folder = Path(f"/made/branch-{words}") if self.real is None else self.real / f"branch-{words}"
        await self.line.checkout(start.commit, folder)
        for path, data in files.items():
            self._write(folder, path, data)
        made = await self.line.commit(folder, (start.commit,), words, 1)
        if self.real is None:
            del self.folders[folder]
        else:
            shutil.rmtree(folder)
        return made

    def _write(self, folder: Path, path: str, data: bytes | None) -> None:
        if self.real is None:
            view = self.folders[folder]
            if data is None:
                del view[path]
            else:
                view[path] = data
            return
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            (folder / path).unlink()
        else:
            (folder / path).write_bytes(data)

    async def queue(self, shift: Shift, name: str, commit: Commit, attempt: int = 1) -> None:
        """Have a task hand in that commit and pass all that comes before the queue."""
        child, ref = f"ses_{name}_{attempt}", f"refs/heads/holdfast/demo/{name}"
        await shift.fact(
            TaskStarted(task_id=name, child_id=child, attempt=attempt, base=state_of(shift).main, ref=ref),
            TaskHandedIn(task_id=name, child_id=child, status="done", commit=commit.commit, tree=commit.tree),
            TaskInspected(task_id=name, tree=commit.tree, files=(name,)),
            TaskQueued(task_id=name, commit=commit.commit, tree=commit.tree),
        )

    async def step(self, shift: Shift) -> bool:
        """One step of the conductor about the main line; False when it has none."""
        mission = state_of(shift)
        action = merges.step(shift.state, mission, frozenset())
        match action:
            case Assemble():
                await merging.assemble(shift, action)
            case Verify():
                self.verified += 1
                await verifying.verify(shift, action)
            case Advance():
                await merging.advance(shift, action)
            case Record(facts=facts):
                await shift.fact(*facts)
            case _:
                return False
        return True

    async def drain(self, shift: Shift, most: int = 2_000) -> None:
        """Until the main line needs nothing."""
        for _ in range(most):
            if not await self.step(shift):
                return
        raise AssertionError("the main line does not come to rest")


def state_of(shift: Shift) -> MissionState:
    """The mission's state now."""
    return of_mission(shift.state)


def task(name: str, *criteria: str) -> Task:
    """A task for these criteria."""
    return Task(name, f"work of {name}", criteria)


async def checked(stage: MergeStage, shift: Shift, commit: Commit, *names: str, effect: str = "task:t:1") -> None:
    """A verification of a commit for these criteria, all by default."""
    wanted = names or tuple(stage.contract.criteria())
    with anyio.fail_after(PATIENCE_S):
        await verifying.verify(shift, Verify(effect, commit.commit, commit.tree, wanted))


async def verdicts(stage: MergeStage) -> dict[str, str]:
    """The latest outcome of each criterion."""
    facts = await stage.facts(CriterionChecked)
    return {name: fact.outcome for fact in facts for name in fact.criteria}
