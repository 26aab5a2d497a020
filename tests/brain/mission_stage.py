"""A mission on a stage: its log, its repository and all folders in memory, a script for each of its roles."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from holdfast.brain.doors import Doors
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.brain.wake import Outcome, wake
from holdfast.facts.codec import Draft, Event
from holdfast.facts.mission import (
    Check,
    Contract,
    Criterion,
    Item,
    Mission,
    MissionOpened,
    MissionPlanned,
    MissionPolicy,
    Task,
)
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.ids import new_event_id, system_entropy
from holdfast.kinds import KINDS
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.model.base import Model
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.repo.fake_repository import FakeRepository
from holdfast.session.tools import DEFAULT_TOOLS
from holdfast.sim.missions.world import Folders
from tests.brain.stage import Stage, WatchedModel
from tests.support.waiting import PATIENCE_S

FILES = {
    "AGENTS.md": b"Write short functions.\n",
    "src/app/AGENTS.md": b"No globals here.\n",
    "src/app/core.py": b"def add(a, b):\n    raise NotImplementedError\n",
    "src/app/text.py": b"def shout(text):\n    raise NotImplementedError\n",
    "tests/test_core.py": b"from app.core import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
}

CONTRACT = Contract(
    goal="make the library whole",
    items=(
        Item(
            id="core",
            description="adding works",
            criteria=(Criterion("add", "add gives the sum", Check("pytest -q", ("tests/test_core.py",))),),
            paths=("src/app/core.py",),
        ),
        Item(
            id="text",
            description="shouting works",
            criteria=(Criterion("shout", "shout is loud", Check("true")), Criterion("tone", "it sounds friendly")),
            paths=("src/app/text.py",),
            depends=("core",),
        ),
    ),
    protected=("tests/**",),
    source="feature_list.json",
)

TASKS = (
    Task("core", "adding", ("add",), ("src/app/core.py",), description="write the body of add"),
    Task("text", "shouting", ("shout", "tone"), ("src/app/text.py",), ("core",)),
)


@dataclass
class MissionStage:
    """A mission and its roles. `scripts` are by the name of a role's agent, such as `worker core`."""

    scripts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    policy: MissionPolicy = field(default_factory=lambda: MissionPolicy(hooks=False))
    limits: Limits = field(default_factory=Limits)
    contract: Contract = CONTRACT
    price: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self.stage = Stage([])
        self.store = self.stage.store
        self.mission_id = self.stage.session_id
        self.folders = Folders(self.stage.hands.workspaces)
        self.repository = FakeRepository(self.folders)
        self.base = self.repository.seed(FILES)
        self.models: dict[str, WatchedModel] = {}
        self.doors = replace(
            self.stage.doors,
            prompts={**self.stage.doors.prompts, "mission_worker": "a worker", "judge": "a judge"},
            repository=lambda path: self.repository,
            workspace=self._workspace,
            discard=self._discard,
        )

    def _workspace(self, session_id: str, near: Workspace) -> Workspace:
        self.stage.hands.files(f"/made/{session_id}")
        return Workspace(f"/made/{session_id}", True, near.user, near.isolation)

    def _discard(self, workspace: Workspace) -> None:
        self.folders.pop(Path(workspace.path), None)

    def _model(self, name: str) -> WatchedModel:
        if name not in self.models:
            script = {"turns": self.scripts[name], **({"price": self.price} if self.price else {})}
            inner: Model = ScriptedModel(parse_script(json.dumps(script)), self.stage.clock)
            self.models[name] = WatchedModel(inner)
        return self.models[name]

    async def open(self, *tasks: Task, plan: bool = True) -> Shift:
        """Open the mission, with a plan unless that is not wanted, and hold it."""
        mission = Mission("demo", "/repo", self.base.commit, self.contract, policy=self.policy)
        agent = Agent(model="scripted", name="mission", tools=DEFAULT_TOOLS)
        created = SessionCreated(
            goal=self.contract.goal, agent=agent, workspace=Workspace("/repo"), limits=self.limits, mission=mission
        )
        await self.stage.intake.open(self.mission_id, created)
        shift = await self.hold()
        ref = "refs/heads/holdfast/demo/main"
        opened = MissionOpened(name="demo", ref=ref, base=self.base.commit, tree=self.base.tree)
        await shift.fact(opened, *([MissionPlanned(tasks=tasks or TASKS)] if plan else []))
        shift.decided_at = shift.state.seq
        return shift

    async def hold(self) -> Shift:
        """Take the mission's lease, as the next brain does."""
        state, bodies = await recall(self.mission_id, self.store, self.store, KINDS)
        who = self.doors.worker
        fact = ShiftStarted(who.worker_id, who.host_id, who.boot_id, who.pid, who.program)
        draft = Draft(new_event_id(self.stage.clock.now_us(), system_entropy), "brain", fact)
        lease = await self.store.acquire(self.mission_id, draft, steal=True)
        shift = Shift(self.doors, state, lease, bodies)
        await shift.refresh()
        shift.decided_at = shift.state.seq
        return shift

    async def named(self, name: str) -> str:
        """The latest session whose agent has that name."""
        rows = [row for row in await self.store.sessions() if row.name == name]
        return max(rows, key=lambda row: (row.created_us, row.session_id)).session_id

    def doors_of(self, name: str) -> Doors:
        """What a brain of the role of that name is given."""
        return replace(self.doors, model=lambda _: self._model(name))

    async def wake(self, name: str, session_id: str = "") -> Outcome:
        """Wake a role; a hang fails."""
        with anyio.fail_after(PATIENCE_S):
            return await wake(session_id or await self.named(name), self.doors_of(name))

    async def events(self, session_id: str = "") -> list[Event]:
        """Everything in a log, the mission's unless another is named."""
        return await self.store.read(session_id or self.mission_id)

    async def facts(self, kind: type[Any], session_id: str = "") -> list[Any]:
        """The facts of one type, in order."""
        return [event.fact for event in await self.events(session_id) if isinstance(event.fact, kind)]

    def digest(self) -> str:
        """The digest of the contract."""
        return contract_digest(self.contract)
