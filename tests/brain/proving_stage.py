"""A mission whose checks are run for real: log, repository, hands, and pytest, which the hands see read-only.

As a program it verifies one commit, so that it can be killed: `proving_stage BASE COMMIT TREE CRITERION`.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.errors import UnknownSession
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
)
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.task import CheckProbed, CheckProved
from holdfast.ids import new_event_id, system_entropy
from holdfast.kinds.mission.acts import merging, verifying
from holdfast.kinds.mission.conductor.actions import Open, Verify
from holdfast.repo.git_repository import GitRepository
from tests.brain.merge_stage import state_of, task
from tests.repo.repositories import git, made, put
from tests.support.compiled import compile_modules

SESSION = "ses_01m0000000000000000000000a"
RUNNER = "/opt/runner"
MODULES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")

BASE: dict[str, bytes] = {
    "app.py": b"def add(a, b):\n    raise NotImplementedError\n\n\ndef shout(text):\n    raise NotImplementedError\n",
    "old.py": b"def half(n):\n    return n // 2\n",
    "tests/test_add.py": (
        b"import app\n\n\ndef test_small():\n    assert app.add(1, 2) == 3\n\n\n"
        b"def test_negative():\n    assert app.add(-1, 1) == 0\n"
    ),
    "tests/test_shout.py": b"from app import shout\n\n\ndef test_shout():\n    assert shout('a') == 'A!'\n",
    "tests/test_old.py": b"from old import half\n\n\ndef test_half():\n    assert half(4) == 2\n",
}

RIGHT = b"def add(a, b):\n    return a + b\n\n\ndef shout(text):\n    return text.upper() + '!'\n"
WRONG = b"def add(a, b):\n    return 7\n\n\ndef shout(text):\n    return text\n"

PYTEST = "python3 -m pytest -q"


def criterion(name: str, command: str = PYTEST, *tests: str, guard: bool = False) -> Criterion:
    """A criterion with that check."""
    return Criterion(name, f"{name} works", Check(command, tests, timeout_s=60.0), guard=guard)


CONTRACT = Contract(
    "a library",
    (
        Item("add", "adding", criteria=(criterion("add", PYTEST, "tests/test_add.py"),), paths=("app.py",)),
        Item("shout", "shouting", criteria=(criterion("shout", PYTEST, "tests/test_shout.py"),), paths=("app.py",)),
        Item("old", "halving", criteria=(criterion("old", PYTEST, "tests/test_old.py", guard=True),)),
    ),
    ("tests/**",),
)


def runner(folder: Path) -> Path:
    """Pytest and what it imports, alone in a folder; compiled, since hands cannot write there."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for name in MODULES:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            for place in spec.submodule_search_locations or ():
                shutil.copytree(place, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            if not spec.submodule_search_locations and spec.origin is not None:
                shutil.copy(spec.origin, folder)
        compile_modules(folder)
    return folder


class ProvingStage:
    """One mission and its shift."""

    def __init__(self, runtime: Runtime, shift: Shift, repo: Path) -> None:
        self.runtime = runtime
        self.shift = shift
        self.repo = repo

    async def verified(self, files: Mapping[str, bytes], *names: str, effect: str = "task:t:1") -> dict[str, str]:
        """A verification of a commit with these files changed, on the base: the outcome of each criterion."""
        commit, tree = self.commit(files)
        return await self.verify(commit, tree, *names, effect=effect)

    def commit(self, files: Mapping[str, bytes], name: str = "work") -> tuple[str, str]:
        """A commit with these files changed, on a branch that begins at the base."""
        git(self.repo, "checkout", "-q", "-B", name, "main")
        put(self.repo, files)
        git(self.repo, "add", "-A", "-f")
        git(self.repo, "commit", "-q", "--allow-empty", "-m", name)
        found = git(self.repo, "rev-parse", "HEAD"), git(self.repo, "rev-parse", "HEAD^{tree}")
        git(self.repo, "checkout", "-q", "main")
        return found

    async def verify(self, commit: str, tree: str, *names: str, effect: str = "task:t:1") -> dict[str, str]:
        """A verification of a commit: the outcome of each criterion."""
        wanted = names or tuple(state_of(self.shift).contract.criteria())
        await verifying.verify(self.shift, Verify(effect, commit, tree, wanted))
        found = [each for each in await self.facts(CriterionChecked) if each.tree == tree]
        return {name: each.outcome for each in found for name in each.criteria}

    async def facts(self, kind: type[Any]) -> list[Any]:
        """The facts of one type, in order."""
        events = await self.runtime.store.read(SESSION)
        return [event.fact for event in events if isinstance(event.fact, kind)]

    async def probed(self) -> dict[str, CheckProbed]:
        """The latest measurement of each check."""
        return {each.criterion: each for each in await self.facts(CheckProbed)}

    async def proved(self) -> dict[str, CheckProved]:
        """The latest proof of each check."""
        return {each.criterion: each for each in await self.facts(CheckProved)}

    async def note(self, name: str) -> str:
        """Why the latest verdict of a criterion is red."""
        notes: list[str] = [each.note for each in await self.facts(CriterionChecked) if name in each.criteria]
        return notes[-1]


@asynccontextmanager
async def proving(
    base: Path, contract: Contract = CONTRACT, files: Mapping[str, bytes] = BASE, policy: MissionPolicy | None = None
) -> AsyncIterator[ProvingStage]:
    """The mission, opened or taken up again in the home below `base`."""
    repo = base / "repo"
    if not repo.exists():
        made(repo, files)
    shown = {str(runner(base.parent / "runner")): RUNNER}
    workspace = Workspace(str(repo), read_only=shown, env={"PYTHONPATH": RUNNER, "PYTHONDONTWRITEBYTECODE": "1"})
    async with open_runtime(Settings(home=str(base / "home"))) as runtime:
        line = GitRepository(repo, base / "home" / "repositories")
        doors = replace(runtime.doors(workspace), repository=lambda path: line)
        given = policy or MissionPolicy(judge="off", hooks=False)
        mission = Mission("demo", str(repo), git(repo, "rev-parse", "main"), contract, policy=given)
        try:
            await runtime.store.find(SESSION)
        except UnknownSession:
            created = SessionCreated(goal="g", agent=Agent("scripted"), workspace=workspace, mission=mission)
            await runtime.intake.open(SESSION, created)
        state, bodies = await recall(SESSION, runtime.store, runtime.store, runtime.kinds)
        who = runtime.worker
        fact = ShiftStarted(who.worker_id, who.host_id, who.boot_id, who.pid, who.program)
        draft = Draft(new_event_id(doors.clock.now_us(), system_entropy), "brain", fact)
        shift = Shift(doors, state, await runtime.store.acquire(SESSION, draft), bodies)
        await shift.refresh()
        if not state_of(shift).opened_seq:
            await merging.open_mission(shift, Open())
            tasks = tuple(task(item.id, *(each.id for each in item.criteria)) for item in contract.items)
            await shift.fact(MissionPlanned(tasks=tasks))
        yield ProvingStage(runtime, shift, repo)


async def main(*words: str) -> None:
    """Verify one criterion of a commit."""
    base, commit, tree, name = words
    async with proving(Path(base)) as stage:
        print("begun", flush=True)
        print(await stage.verify(commit, tree, name), flush=True)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:5])
