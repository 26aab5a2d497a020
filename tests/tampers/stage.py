"""A whole verification of what a worker handed in: the conductor's own steps, real git, real sandboxes.

Only the worker is missing: what it would have handed in is committed here. What follows is decided by the conductor
and done by its acts, until the work is sent back or the mission's main branch has it.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio

from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.facts.codec import Draft
from holdfast.facts.mission import Contract, Criterion, CriterionChecked, Item, Mission, MissionPolicy
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.task import TaskEnded, TaskHandedIn, TaskInspected, TaskRefused, TaskStarted
from holdfast.hands.base import ExecRequest, HandsSpec
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.user import choose_user, make_ready
from holdfast.ids import new_event_id, new_hands_id, system_entropy
from holdfast.kinds import KINDS
from holdfast.kinds.mission.acts import conducting as acts
from holdfast.kinds.mission.conductor.actions import Advance, OpenRole, TellRole
from holdfast.kinds.mission.conductor.decide import decide
from holdfast.kinds.mission.contract.protected import protected
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.repository import Commit
from holdfast.session.actions import Record
from tests.brain.stage import Stage
from tests.repo.repositories import made, put
from tests.tampers.corpus import Repo, Tamper
from tests.tampers.runners import mounts

POLICY = MissionPolicy(hooks=False, judge="off", planner="items", documents=False, lessons="off", flake_reruns=0)
"""As a user has it, without other roles. A red check is not run again, which would take most of the time."""

CAN_HIDE = "hidden" in Contract.__struct_fields__

STEPS_MAX = 200

TOO_LONG_S = 240.0

Outcome = Literal["refused", "red", "green"]


class Found(NamedTuple):
    """What came of a hand-in: `refused` by inspection, `red` by verification, `green` when the main branch has it."""

    outcome: Outcome
    why: str
    seconds: float


def contract_of(repo: Repo) -> Contract:
    """One item, whose checks the tamper wants to be green; one of them may be hidden."""
    criteria = [Criterion("works", "the product does what its tests say", repo.check)]
    more: dict[str, Any] = {}
    if repo.hidden_check is not None and CAN_HIDE:
        criteria.append(Criterion("more", "it does so for other values", repo.hidden_check))
        above = ((path.rpartition("/")[0], path) for path in sorted(repo.hidden))
        more["hidden"] = tuple(dict.fromkeys(f"{folder}/**" if folder else path for folder, path in above))
    item = Item("product", "the product works", criteria=tuple(criteria), paths=repo.paths)
    return Contract("make it work", (item,), protected(), **more)


def base_of(repo: Repo) -> dict[str, bytes]:
    """The files that the mission begins with, the hidden ones among them."""
    return {**repo.files, **(repo.hidden if CAN_HIDE else {})}


class TamperStage:
    """A mission on a repository, with the hands that a user has."""

    def __init__(self, base: Path, repo: Repo, tools: Path) -> None:
        self.base, self.repo, self.tools = base, repo, tools
        self.stage = Stage([])
        self.line = GitRepository(base / "repo", base / "state")
        self.doors = replace(
            self.stage.doors,
            hands=BubblewrapProvider(base / "hands"),
            repository=lambda path: self.line,
            uid=lambda workspace: choose_user(workspace).uid,
            workspace=self._folder,
            discard=lambda workspace: shutil.rmtree(workspace.path, ignore_errors=True),
        )

    def _folder(self, session_id: str, near: Workspace) -> Workspace:
        path = self.base / "made" / session_id
        path.mkdir(parents=True, mode=0o700)
        laid, env = mounts(self.repo.needs, self.tools)
        fresh = Workspace(str(path), True, near.user, near.isolation, laid, env, origin=near.origin)
        make_ready(fresh, choose_user(fresh))
        return fresh

    async def begin(self) -> Shift:
        """A new mission, and its lease."""
        made(self.base / "repo", base_of(self.repo))
        found = await self.line.resolve("refs/heads/main")
        assert found is not None
        mission = Mission("demo", str(self.base / "repo"), found.commit, contract_of(self.repo), policy=POLICY)
        created = SessionCreated(
            goal="make it work", agent=Agent("scripted"), workspace=Workspace(str(self.base / "repo")), mission=mission
        )
        session_id = self.stage.session_id
        await self.stage.intake.open(session_id, created)
        state, bodies = await recall(session_id, self.stage.store, self.stage.store, KINDS)
        who = self.doors.worker
        fact = ShiftStarted(who.worker_id, who.host_id, who.boot_id, who.pid, who.program)
        draft = Draft(new_event_id(self.stage.clock.now_us(), system_entropy), "brain", fact)
        lease = await self.stage.store.acquire(session_id, draft, steal=True)
        shift = Shift(self.doors, state, lease, bodies)
        await shift.refresh()
        return shift

    async def _hand_in(self, shift: Shift, action: OpenRole, files: dict[str, bytes | None]) -> None:
        """In place of the worker that is asked for: its tree is handed in."""
        assert action.kind == "worker", f"a role is asked for: {action}"
        work = await self._commit(action.commit, files)
        worker = f"ses_worker_{action.attempt}"
        start = TaskStarted(
            task_id=action.task_id, child_id=worker, attempt=action.attempt, base=action.base, ref=action.ref
        )
        handed = TaskHandedIn(
            task_id=action.task_id,
            child_id=worker,
            status="done",
            commit=work.commit,
            tree=work.tree,
            notes="it works",
        )
        await shift.fact(start, handed)

    async def _commit(self, on: str, files: dict[str, bytes | None]) -> Commit:
        folder = self.base / "work"
        await self.line.checkout(on, folder)
        for path, data in files.items():
            if data is None:
                (folder / path).unlink()
            else:
                put(folder, {path: data})
                if data.startswith(b"#!"):
                    (folder / path).chmod(0o755)
        work = await self.line.commit(folder, (on,), "what was handed in", 1)
        shutil.rmtree(folder)
        return work

    async def settle(self, shift: Shift, files: dict[str, bytes | None]) -> tuple[Outcome, str]:
        """Do what the conductor decides, until the hand-in has met its end."""
        ran: set[str] = set()
        for _ in range(STEPS_MAX):
            action: Any = decide(shift.state, self.stage.clock.now_us(), frozenset(), frozenset(ran))
            shift.decided_at = shift.state.seq
            if isinstance(action, OpenRole):
                await self._hand_in(shift, action, files)
            elif isinstance(action, Record | TellRole):
                end = _end(action.facts)
                if end is not None:
                    return end[0], await self._why(end[1])
                await shift.fact(*action.facts)
            elif type(action) in acts.EFFECTS:
                await acts.EFFECTS[type(action)](shift, action)
                ran.add(action.effect)
                if isinstance(action, Advance):
                    return "green", ""
            else:
                raise AssertionError(f"the conductor does not go on: {action}")
            await shift.refresh()
        raise AssertionError("the hand-in does not come to rest")

    async def _why(self, said: str) -> str:
        """What the log says last: the violations, or the end of an output."""
        facts = [event.fact for event in await self.stage.events()]
        inspected = [fact for fact in facts if isinstance(fact, TaskInspected) and fact.violations]
        if inspected:
            return "; ".join(f"{each.rule} {each.path}" for each in inspected[-1].violations)
        checked = [fact for fact in facts if isinstance(fact, CriterionChecked)]
        return f"{said} | {checked[-1].output[-300:]}" if checked else said


def _end(facts: tuple[Any, ...]) -> tuple[Outcome, str] | None:
    for fact in facts:
        if isinstance(fact, TaskRefused):
            kind: Outcome = "red" if fact.kind == "checks" else "refused"
            return kind, f"{fact.kind}: {'; '.join(str(each) for each in fact.issues)}"
        if isinstance(fact, TaskEnded):
            return "red", fact.why
    return None


async def whole(tamper: Tamper, base: Path, tools: Path) -> Found:
    """The whole verification of one tamper or twin."""
    began_s = time.monotonic()
    stage = TamperStage(base, tamper.repo, tools)
    with anyio.fail_after(TOO_LONG_S):
        outcome, why = await stage.settle(await stage.begin(), tamper.files)
    return Found(outcome, why, time.monotonic() - began_s)


async def truth(tamper: Tamper, base: Path, tools: Path) -> bool:
    """Whether the product is right, by checks that are no part of its repository, where no mechanism is at work."""
    stage = TamperStage(base, tamper.repo, tools)
    workspace = stage._folder("truth", Workspace(str(base)))
    folder = Path(workspace.path)
    files = {**tamper.repo.files, **tamper.files, **tamper.repo.truth_files}
    put(folder, {path: data for path, data in files.items() if data is not None})
    make_ready(workspace, choose_user(workspace))
    hands_id = new_hands_id(stage.doors.clock.now_us(), system_entropy)
    spec = HandsSpec("ses_truth", hands_id, workspace, read_only=workspace.read_only, env=workspace.env)
    hands = await stage.doors.hands.provision(spec, 1)
    try:
        await hands.start(1, "truth", ExecRequest("bash", {"command": tamper.repo.truth}, 60.0))
        result = await hands.wait(1, "truth")
    finally:
        await hands.release(1)
    return result.exit_code == 0
