"""Tampers as whole missions: a scripted worker writes the tamper and hands it in, a judge likes whatever it sees.

Every session is woken until none of them goes on: the mission, its workers, its judges, each in sandboxes of its own.
What a worker cannot write (protected files are read-only there) is missing from what it hands in.
"""

from __future__ import annotations

import base64
import json
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from holdfast.brain.doors import Doors
from holdfast.brain.wake import wake
from holdfast.facts.mission import Criterion, CriterionChecked, Mission, MissionFinished, MissionPolicy
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.task import TaskRefused
from holdfast.model.base import Model
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.session.tools import DEFAULT_TOOLS
from tests.brain.stage import turn
from tests.repo.repositories import made
from tests.tampers import stage
from tests.tampers.corpus import Tamper
from tests.tampers.stage import Found, TamperStage

POLICY = MissionPolicy(
    hooks=False,
    planner="items",
    documents=False,
    lessons="off",
    max_iterations=2,
    max_attempts=1,
    max_replans=0,
    flake_reruns=0,
)

ROUNDS_MAX = 60

TOO_LONG_S = 600.0

RUBRIC = Criterion("tone", "the code reads well")


def one_per_class(tampers: list[Tamper], most: int) -> list[Tamper]:
    """Some of each class: the first of all classes, then the second, up to so many."""
    by_kind: dict[str, list[Tamper]] = {}
    for each in tampers:
        by_kind.setdefault(each.kind, []).append(each)
    ordered = [
        group[at] for at in range(max(map(len, by_kind.values()))) for group in by_kind.values() if at < len(group)
    ]
    return ordered[:most]


def _written(tamper: Tamper) -> str:
    """The command of the worker: one line for each file, and none stops the others."""
    lines = []
    for path, data in tamper.files.items():
        name = shlex.quote(path)
        if data is None:
            lines.append(f"rm -f {name}")
        else:
            text = base64.b64encode(data).decode()
            mode = f"; chmod 755 {name}" if data.startswith(b"#!") else ""
            lines.append(f'mkdir -p "$(dirname {name})"; echo {text} | base64 -d > {name}{mode}')
    return "\n".join([*lines, "true"])


def _worker(tamper: Tamper) -> list[dict[str, Any]]:
    done = turn("", ("hand_in", {"status": "done", "notes": "it works"}))
    return [turn("", ("bash", {"command": _written(tamper)})), *[done] * 6]


def _judge(tamper: Tamper, criteria: tuple[str, ...]) -> list[dict[str, Any]]:
    """It quotes a line that is there, and is content."""
    files = {path: data for path, data in {**tamper.repo.files, **tamper.files}.items() if data}
    changed = [path for path in tamper.files if files.get(path)] or list(files)
    path = next((each for each in changed if not each.startswith("test")), changed[0])
    number, line = next((at, line) for at, line in enumerate(files[path].decode().splitlines(), 1) if line.strip())
    evidence = [f"{path}:{number}: {line.strip()}"]
    each = [{"criterion": name, "passes": True, "evidence": evidence, "issue": ""} for name in criteria]
    said = turn("", ("submit_verdict", {"decision": "pass", "criteria": each}))
    return [turn("", ("bash", {"command": f"cat {shlex.quote(path)}"})), *[said] * 3]


class _Mission(TamperStage):
    def __init__(self, base: Path, tamper: Tamper, tools: Path) -> None:
        super().__init__(base, tamper.repo, tools)
        self.tamper = tamper
        contract = stage.contract_of(tamper.repo)
        (item,) = contract.items
        item = item.__class__(**{**_fields(item), "criteria": (*item.criteria, RUBRIC)})
        self.contract = contract.__class__(**{**_fields(contract), "items": (item,)})
        prompts = {**self.doors.prompts, "mission_worker": "a worker", "judge": "a judge", "planner": "a planner"}
        self.doors = replace(self.doors, prompts=prompts)

    async def open(self) -> str:
        made(self.base / "repo", stage.base_of(self.repo))
        found = await self.line.resolve("refs/heads/main")
        assert found is not None
        mission = Mission("demo", str(self.base / "repo"), found.commit, self.contract, policy=POLICY)
        created = SessionCreated(
            goal="make it work",
            agent=Agent("scripted", name="mission", tools=DEFAULT_TOOLS),
            workspace=Workspace(str(self.base / "repo")),
            mission=mission,
        )
        await self.stage.intake.open(self.stage.session_id, created)
        return self.stage.session_id

    def doors_of(self, name: str) -> Doors:
        criteria = tuple(self.contract.criteria())
        turns = _judge(self.tamper, criteria) if name.startswith("judge") else _worker(self.tamper)
        model: Model = ScriptedModel(parse_script(json.dumps({"turns": turns})), self.stage.clock)
        return replace(self.doors, model=lambda _: model)

    async def live(self) -> None:
        """Wake whatever can go on, until nothing can."""
        for _ in range(ROUNDS_MAX):
            before = await self._events()
            for row in sorted(await self.stage.store.sessions(), key=lambda row: bool(row.parent), reverse=True):
                await wake(row.session_id, self.doors_of(row.name))
            if await self._events() == before:
                return
        raise AssertionError("the mission does not come to rest")

    async def _events(self) -> int:
        return sum([len(await self.stage.store.read(row.session_id)) for row in await self.stage.store.sessions()])


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


async def mission(tamper: Tamper, base: Path, tools: Path) -> Found:
    """A whole mission; `green` when it ended done."""
    began_s = time.monotonic()
    lived = _Mission(base, tamper, tools)
    with anyio.fail_after(TOO_LONG_S):
        await lived.open()
        await lived.live()
    facts = [event.fact for event in await lived.stage.events()]
    ended = [each.status for each in facts if isinstance(each, MissionFinished)]
    refused = [each for each in facts if isinstance(each, TaskRefused)]
    seconds = time.monotonic() - began_s
    if ended == ["done"]:
        return Found("green", "", seconds)
    last = refused[-1].tree if refused else ""
    checks = [each for each in facts if isinstance(each, CriterionChecked) and each.tree == last]
    why = "; ".join(f"{each.kind}: {each.issues[:1]}" for each in refused) or str(ended)
    return Found("red" if checks else "refused", why, seconds)
