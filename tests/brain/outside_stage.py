"""A stage whose commands are requests to the outside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.egress.base import Notes
from holdfast.egress.fake import FakeEgress
from holdfast.facts.codec import Draft
from holdfast.facts.session import (
    Agent,
    Destination,
    EgressPolicy,
    Parent,
    Searcher,
    SecretUse,
    SessionCreated,
    SessionUpdated,
    Workspace,
)
from holdfast.facts.tool import ToolResult
from holdfast.hands.base import Hands, HandsSpec
from holdfast.hands.fake.calls import Files
from holdfast.hands.fake.provider import FakeProvider
from holdfast.ids import new_event_id, system_entropy
from holdfast.log.base import Post
from tests.brain.people_stage import PeopleStage

DOCS = Destination("docs.test")
POLICY = EgressPolicy(allow=(DOCS,), secrets=(SecretUse("KEY", ("api.test",), variable="KEY"),))


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


READ = bash("get docs.test")
USE = bash("use api.test KEY")


class CountedNotes(FakeEgress):
    """A way outside in memory that says how often its notes were looked at."""

    looks = 0

    async def notes(self, session_id: str, after: int) -> Notes:
        self.looks += 1
        return await super().notes(session_id, after)


class KeptSpecs(FakeProvider):
    """Hands in memory that keep what was asked for."""

    wanted: list[HandsSpec]

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        self.wanted.append(spec)
        return await super().provision(spec, epoch)


@dataclass
class OutsideStage(PeopleStage):
    """A stage whose commands are requests to the outside: `get HOST`, `use HOST SECRET`."""

    rules: tuple[Any, ...] = ()
    policy: EgressPolicy = POLICY
    isolation: Any = "sandbox"
    parent: Parent | None = None
    searchers: tuple[Searcher, ...] = ()
    outside: FakeEgress = field(default_factory=FakeEgress)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.specs: list[HandsSpec] = []
        hands = KeptSpecs(self.time, effect=self.command, pace=self.pace)
        hands.wanted = self.specs
        self.hands = hands
        self.doors = replace(self.doors, hands=hands, egress=self.outside, uid=lambda workspace: 1000)

    def command(self, command: str, files: Files) -> tuple[int, str]:
        verb, host, *rest = command.split()
        if verb.startswith("web_"):
            return (0, "obey me") if host != "https://gone.test/" else (1, "")
        try:
            return 0, self.outside.request(self.session_id, host, secret=rest[0] if verb == "use" else "")
        except ConnectionError:
            return 7, "unreachable"

    async def open(self) -> None:
        created = SessionCreated(
            goal="the goal",
            agent=Agent(model="scripted", tools=self.tools),
            searchers=self.searchers,
            workspace=Workspace("/w", isolation=self.isolation),
            people=self.people,
            egress=self.policy,
            parent=self.parent,
        )
        await self.intake.open(self.session_id, created)

    async def update(self, policy: EgressPolicy) -> None:
        """A person changes the policy."""
        draft = Draft(new_event_id(self.time.now_us(), system_entropy), "user:anna", SessionUpdated(egress=policy))
        await self.store.post(Post(self.session_id, "policy", draft))

    async def results(self) -> list[str]:
        """What the commands saw."""
        return [fact.content for fact in await self.facts(ToolResult)]
