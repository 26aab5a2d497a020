"""Sixteen children at work at the same time on the money of their parent, which is less than they want.

The same world, processes and weather as in a storm; every other seed has calm weather. There, children must be
able to use nearly all of the cap: what they hold for open requests may keep money from nobody for good.
"""

from __future__ import annotations

import asyncio
import json

from holdfast.facts.child import ChildOpened
from holdfast.facts.session import Agent, ContextPolicy, Limits, SessionCreated, Workspace
from holdfast.ids import new_session_id
from holdfast.sim.people import ONE_PICO, OWN_TOOLS
from holdfast.sim.storm import Storm
from holdfast.sim.world import CALM, World
from holdfast.sim.world_model import SaidCall, Script, Turn

CHILDREN = 16

USABLE = 0.9
"""The part of a cap that children in calm weather use at least, when they want more than it."""

STEPS = 30
"""What happens in bad weather before it is calm."""


class Crowd(Storm):
    """The driver of such a world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.width = 8
        self.calm_weather = world.seed % 2 == 0
        if self.calm_weather:
            world.weather = CALM
        self.cap_pico = int(ONE_PICO * world.chance.uniform(7.0, 12.0))

    async def run(self) -> None:
        """The whole life of the world."""
        await self._open()
        for _ in range(2 if self.calm_weather else STEPS):
            while len([each for each in self.processes if each.alive and not each.frozen]) < 3:
                self.worker()
            if not self.calm_weather:
                await self.trouble()
            await asyncio.sleep(self.world.chance.choice((0.01, 0.3, 1.0, 4.0)))
        await self.calm()
        await self._look()

    async def _open(self) -> None:
        world = self.world
        session_id = new_session_id(world.clock.now_us(), world.entropy)
        trouble = 0.0 if self.calm_weather else world.chance.choice((0.0, 0.1))
        script = Script("a", world.chance.getrandbits(40), 0, trouble, priced=True, wants=True)
        spawns = [SaidCall("spawn", json.dumps({"goal": f"part {number}"})) for number in range(CHILDREN)]
        script.say(0, _turn(*spawns))
        script.say(1, _turn(SaidCall("wait_for_children", "{}")))
        created = SessionCreated(
            goal="many hands",
            agent=Agent(model="sim:first", tools=(*OWN_TOOLS, "spawn", "wait_for_children")),
            workspace=Workspace(path=world.workspace(session_id), disposable=True),
            limits=Limits(
                budget_pico=self.cap_pico,
                max_output_tokens=1024,
                max_children=CHILDREN,
                context=ContextPolicy(strategy="off"),
            ),
        )
        await self.people.opened(session_id, created, script)

    def used(self) -> float:
        """The part of the cap that was spent."""
        account = self.world.beside.accounts[next(iter(self.world.sessions))]
        return account.spent_pico / self.cap_pico

    def worst_over_pico(self) -> int:
        """How far what was spent and held was ever beyond the cap, by the events; 0 for never."""
        worst = held = spent = 0
        reserved: dict[tuple[str, int], int] = {}
        for commit in self.world.record.commits:
            for event in commit.events:
                amount = getattr(event.fact, "reserved_pico", None) or 0
                if amount:
                    reserved[event.session_id, event.seq] = amount
                    held += amount
                    worst = max(worst, spent + held - self.cap_pico)
                if event.type == "span.model_request_end":
                    held -= reserved.pop((event.session_id, getattr(event.fact, "request_seq", 0)), 0)
                    spent += getattr(event.fact, "cost_pico", None) or 0
                    worst = max(worst, spent - self.cap_pico)
        return worst

    def lacks(self) -> list[str]:
        """What should have come of it and did not."""
        out = []
        opened = sum(
            isinstance(event.fact, ChildOpened) for event in self.world.events[next(iter(self.world.sessions))]
        )
        wanting = [row for row in self.world.beside.rows.values() if row.reason == "budget"]
        if self.calm_weather and opened != CHILDREN:
            out.append(f"{opened} children were opened, not {CHILDREN}")
        if self.calm_weather and wanting and self.used() < USABLE:
            out.append(f"{self.used():.1%} of the cap was used, and {len(wanting)} sessions want more")
        if self.worst_over_pico() > 0:
            out.append(f"{self.worst_over_pico()} pico-dollars beyond the cap")
        return out


def _turn(*calls: SaidCall) -> Turn:
    return Turn("", "", "", tuple(calls), "tool_use", 40, ())
