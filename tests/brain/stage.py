"""A brain on a stage: the log and the hands in memory, a script for a model, every request kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from holdfast.brain.doors import Doors, NoObserver, Worker
from holdfast.brain.wake import Outcome, wake
from holdfast.clock import Clock, SystemClock
from holdfast.facts.base import Usage
from holdfast.facts.codec import Event
from holdfast.facts.session import Agent, HandsPolicy, Limits, Rule, SessionCreated, Workspace
from holdfast.hands.fake.calls import Effect, nothing_happens
from holdfast.hands.fake.provider import FakeProvider, Pace, at_once
from holdfast.ids import system_entropy
from holdfast.kinds import KINDS
from holdfast.log.memory import MemoryStore
from holdfast.model.base import Model, ModelRequest, StreamPart
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from tests.support.waiting import PATIENCE_S

OnPart = Callable[[StreamPart], Any]


class WatchedModel:
    """A model that keeps its requests and calls `on_part` before each part it yields."""

    def __init__(self, inner: Model) -> None:
        self.name = inner.name
        self.inner = inner
        self.requests: list[ModelRequest] = []
        self.on_part: Callable[[StreamPart], Any] | None = None

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """As the script says."""
        return self.inner.worst_case_pico(request)

    def cost_pico(self, usage: Usage) -> int | None:
        """As the script says."""
        return self.inner.cost_pico(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The script's parts."""
        self.requests.append(request)
        async for part in self.inner.stream(request):
            if self.on_part is not None:
                await self.on_part(part)
            yield part


def turn(text: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A turn of a script."""
    return {"text": text, "tool_calls": [{"name": name, "input": value} for name, value in calls], **more}


@dataclass
class Stage:
    """One session and everything around it."""

    turns: list[dict[str, Any]]
    price: dict[str, float] | None = None
    limits: Limits = field(default_factory=Limits)
    rules: tuple[Rule, ...] = ()
    effect: Effect = nothing_happens
    pace: Pace = at_once
    compaction: list[dict[str, Any]] = field(default_factory=list)
    handoff: list[dict[str, Any]] = field(default_factory=list)
    pinned: str = ""
    criteria: tuple[str, ...] = ()
    tools: tuple[str, ...] = Agent("").tools
    clock: Clock = field(default_factory=SystemClock)
    hands_policy: HandsPolicy = field(default_factory=HandsPolicy)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)
        self.hands = FakeProvider(self.clock, effect=self.effect, pace=self.pace)
        script: dict[str, Any] = {"turns": self.turns, "compaction": self.compaction, "handoff": self.handoff}
        script |= {"price": self.price} if self.price else {}
        self.model = WatchedModel(ScriptedModel(parse_script(json.dumps(script)), self.clock))
        self.intake = Intake(self.store, self.store, self.clock, system_entropy, Caller("user:test"))
        self.session_id = self.intake.new_session_id()
        self.doors = Doors(
            kinds=KINDS,
            log=self.store,
            leases=self.store,
            snapshots=self.store,
            hands=self.hands,
            model=lambda name: self.model,
            clock=self.clock,
            entropy=system_entropy,
            worker=Worker("wrk_1", "fake-host", "fake-boot", 1, "test"),
            prompt="the prompt",
            prompts={"compaction": "summarise", "handoff": "leave a note"},
            observer=NoObserver(),
        )

    async def open(self) -> None:
        """Open the session."""
        agent = Agent(model="scripted", rules=self.rules, tools=self.tools)
        created = SessionCreated(
            goal="the goal",
            agent=agent,
            workspace=Workspace("/w"),
            limits=self.limits,
            rules=self.pinned,
            criteria=self.criteria,
            hands=self.hands_policy,
        )
        await self.intake.open(self.session_id, created)

    async def wake(self, worker: str = "wrk_1", *, steal: bool = False) -> Outcome:
        """Wake it; a hang fails."""
        who = replace(self.doors.worker, worker_id=worker)
        with anyio.fail_after(PATIENCE_S):
            return await wake(self.session_id, replace(self.doors, worker=who), steal=steal)

    async def run(self) -> Outcome:
        """Open it and wake it."""
        await self.open()
        return await self.wake()

    async def events(self) -> list[Event]:
        """Everything in the log."""
        return await self.store.read(self.session_id)

    async def types(self) -> list[str]:
        """The types of all events, in order."""
        return [event.type for event in await self.events()]

    async def facts(self, kind: type[Any]) -> list[Any]:
        """The facts of one type, in order."""
        return [event.fact for event in await self.events() if isinstance(event.fact, kind)]

    async def until(self, type_: str) -> Event:
        """Wait until an event of that type stands in the log."""
        seen = 0
        with anyio.fail_after(PATIENCE_S):
            while True:
                for event in await self.store.read(self.session_id, after=seen):
                    seen = event.seq
                    if event.type == type_:
                        return event
                await self.store.wait(self.session_id, seen)

    async def post(self, act: str, *words: str) -> None:
        """`send`, `interrupt` or `cancel`."""
        row = await self.store.find(self.session_id)
        await getattr(self.intake, act)(row, *words)
