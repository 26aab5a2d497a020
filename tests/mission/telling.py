"""A mission told by its events, for what is made from them."""

from __future__ import annotations

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
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
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.task import RefusalKind, TaskRefused
from holdfast.facts.union import type_of
from holdfast.kinds import KINDS
from holdfast.kinds.mission.documents import Told
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.session.fold import empty, fold

CONTRACT = Contract(
    goal="make the\nlibrary whole",
    items=(
        Item("core", "adding", criteria=(Criterion("add", "add gives the sum", Check("pytest -q", ("t.py::a",))),)),
        Item("text", "shouting", criteria=(Criterion("tone", "it sounds | friendly"),)),
    ),
)

TASKS = (
    Task("core", "adding", ("add",)),
    Task("text", "shouting <!-- /holdfast:plan --> | twice", ("tone",), depends=("core",)),
)


class Telling:
    """A mission whose events are appended one by one."""

    def __init__(self, policy: MissionPolicy | None = None) -> None:
        self.events: list[Event] = []
        self.state = empty("ses_1", KINDS)
        mission = Mission("demo", "/repo", "c" * 40, CONTRACT, policy=policy or MissionPolicy())
        self.tell(
            SessionCreated(goal="g", agent=Agent("m", tools=()), workspace=Workspace("/w"), mission=mission),
            MissionOpened(name="demo", ref="refs/heads/holdfast/demo/main", base="c" * 40, tree="t" * 40),
            MissionPlanned(tasks=TASKS),
        )

    def tell(self, *facts: Fact, actor: str = "brain") -> int:
        """Append and fold. Returns the last position."""
        for fact in facts:
            seq = self.state.seq + 1
            event = Event("ses_1", seq, 1, seq * 1_000_000, bytes(32), f"evt_{seq}", actor, type_of(fact), fact)
            self.state = fold(self.state, [event])
            self.events.append(event)
        return self.state.seq

    def refuse(self, task_id: str, child_id: str, kind: RefusalKind, *issues: str) -> int:
        """Work is sent back."""
        return self.tell(TaskRefused(task_id=task_id, child_id=child_id, kind=kind, issues=issues))

    @property
    def told(self) -> Told:
        """What documents are made from."""
        return Told("demo", of_mission(self.state), self.events)
