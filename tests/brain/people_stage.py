"""A stage with people around it: policies, targets, a clock that can be put forward."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from holdfast.clock import SystemClock
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import Agent, CustomTool, People, Rule, SessionCreated, Workspace
from holdfast.ids import system_entropy
from holdfast.log.memory import MemoryStore
from holdfast.notify.base import Outlet
from holdfast.notify.fake import FakeTarget
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from holdfast.session.context.conversation import ToolResultPart
from holdfast.session.rows import ItemRow
from holdfast.session.tools import DEFAULT_TOOLS
from tests.brain.stage import Stage

HOUR_US = 3_600_000_000
BASH = ("bash", {"command": "sh deploy.sh"})
PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}
USED = {"usage": {"input_tokens": 1_000_000, "output_tokens": 0}}


class Ahead(SystemClock):
    """A clock that can be put forward."""

    ahead_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.ahead_us


@dataclass
class PeopleStage(Stage):
    """A stage with people around it, and targets that reach them."""

    rules: tuple[Rule, ...] = (Rule("bash", "ask"),)
    people: People = field(default_factory=People)
    custom: tuple[CustomTool, ...] = ()
    targets: tuple[FakeTarget, ...] = ()
    more_tools: tuple[str, ...] = ()
    workspace: Workspace = field(default_factory=lambda: Workspace("/w"))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.time = Ahead()
        self.store = MemoryStore(self.time)
        self.intake = Intake(self.store, self.store, self.time, system_entropy, Caller("user:anna"))
        self.doors = replace(
            self.doors,
            log=self.store,
            leases=self.store,
            snapshots=self.store,
            clock=self.time,
            targets={each.name: Outlet(each) for each in self.targets},
        )

    async def open(self) -> None:
        agent = Agent(model="scripted", rules=self.rules, custom=self.custom, tools=(*DEFAULT_TOOLS, *self.more_tools))
        people = msgspec.structs.replace(self.people, notify=tuple(each.name for each in self.targets))
        created = SessionCreated(
            goal="the goal", agent=agent, workspace=self.workspace, limits=self.limits, people=people
        )
        await self.intake.open(self.session_id, created)

    async def item(self) -> ItemRow:
        """The one question that is open."""
        (item,) = await self.store.items()
        return item

    async def request(self) -> ApprovalRequested:
        """The latest question, whole."""
        latest: ApprovalRequested = (await self.facts(ApprovalRequested))[-1]
        return latest

    def shown(self) -> str:
        """What the model was told of its latest call."""
        part = self.model.requests[-1].messages[-1].parts[0]
        assert isinstance(part, ToolResultPart)
        return part.content

    async def due_us(self) -> int | None:
        """When the session is due."""
        return (await self.store.find(self.session_id)).due_us
