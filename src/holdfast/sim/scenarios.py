"""Scenarios besides the storm: children that share a budget, and jobs that outlive their shifts."""

from __future__ import annotations

import asyncio
import json
from random import Random

from holdfast.brain.acts.results import gather
from holdfast.brain.recall import recall
from holdfast.errors import Fenced, HandsError
from holdfast.facts.codec import Draft
from holdfast.facts.session import Agent, ContextPolicy, Limits, SessionCreated, Workspace
from holdfast.facts.shift import ChildOpened
from holdfast.ids import new_event_id, new_session_id
from holdfast.kinds import KINDS
from holdfast.log.base import Post
from holdfast.session.tools.jobs import JOB_TOOLS
from holdfast.sim.doors import ClockDoor, ProviderDoor, StoreDoor
from holdfast.sim.people import ONE_PICO, OWN_TOOLS
from holdfast.sim.process import Process
from holdfast.sim.record import Delivered
from holdfast.sim.script import SaidCall, Script, Turn
from holdfast.sim.storm import Storm
from holdfast.sim.world import CALM, World

CHILDREN = 16

USABLE = 0.9
"""Least part of a cap that children use in calm weather if they want more."""

STEPS = 30
"""Steps in bad weather before the calm."""


class Crowd(Storm):
    """Sixteen children that work at once and want more than their parent's budget.

    Every other seed has calm weather. There, children must use nearly all of the cap: no reservation for an open
    request may withhold budget from the others forever.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.width = 8
        self.calm_weather = world.seed % 2 == 0
        if self.calm_weather:
            world.weather = CALM
        self.cap_pico = int(ONE_PICO * world.chance.uniform(7.0, 12.0))

    async def run(self) -> None:
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
        spawns = tuple(SaidCall("spawn", json.dumps({"goal": f"part {number}"})) for number in range(CHILDREN))
        script.say(0, Turn("", "", "", spawns, "tool_use", 40, ()))
        script.say(1, Turn("", "", "", (SaidCall("wait_for_children", "{}"),), "tool_use", 40, ()))
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
        """Used part of the cap."""
        account = self.world.beside.accounts[next(iter(self.world.sessions))]
        return account.spent_pico / self.cap_pico

    def worst_over_pico(self) -> int:
        """Largest overspend of the cap by spend and reservations, by the events; 0 for none."""
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
        """Return expected results that are missing."""
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


TIMEOUT_S = 7_200

TRIES = 10
"""Tries to deliver news of a job, with growing pauses."""


class Yard(Storm):
    """Sessions with jobs that take up to an hour. News of a job arrives once, twice, late, or never."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.told = self._told
        chance = world.chance
        self._lost, self._twice, self._late = (chance.choice((0.0, 0.2)), chance.choice((0.0, 0.3)), chance.random())

    async def run(self) -> None:
        chance = self.world.chance
        for name in "ab"[: chance.randint(1, 2)]:
            await self._open(name)
        for _ in range(chance.randint(6, 28)):
            await self._something()
            await asyncio.sleep(chance.choice((0.0, 0.1, 1.0, 8.0, 300.0, 2_000.0)))
        await self.calm()
        await self._look()

    async def _open(self, name: str) -> None:
        world, chance = self.world, self.world.chance
        session_id = new_session_id(world.clock.now_us(), world.entropy)
        script = Script(name, chance.getrandbits(40), 0, chance.choice((0.0, 0.0, 0.15)), priced=True, wants=True)
        last = chance.randint(2, 6)
        for responses in range(last):
            script.say(responses, _turn(script, responses, world.seed))
        script.say(last, Turn("", "", f"answer {name}.{last}", (), "end_turn", 40, ()))
        created = SessionCreated(
            goal=f"long work {name}",
            agent=Agent(model="sim:first", tools=(*OWN_TOOLS, "sleep", *JOB_TOOLS)),
            workspace=Workspace(path=world.workspace(session_id), disposable=True),
            limits=Limits(
                budget_pico=chance.choice((None, ONE_PICO * 1000)),
                max_output_tokens=1024,
                context=ContextPolicy(strategy="off", signs=False),
            ),
        )
        await self.people.opened(session_id, created, script)

    # --- news ---

    def _told(self, session_id: str, call_id: str, news: str) -> None:
        """Start processes that deliver a supervisor's news of a job: once, twice, late, or never."""
        chance = self.world.chance
        if chance.random() < self._lost:
            self.world.note("hands", f"the news of {call_id} are lost")
            return
        for _ in range(2 if chance.random() < self._twice else 1):
            late_s = chance.choice((0.5, 20.0, 400.0)) if chance.random() < self._late else 0.0
            self.world.loop.call_later(late_s, self._deliver, session_id)

    def _deliver(self, session_id: str) -> None:
        async def tell(process: Process) -> None:
            for number in range(TRIES):
                try:
                    if await _take_in(process, session_id):
                        self.worker()
                    return
                except HandsError:
                    await asyncio.sleep(2.0**number)

        self.spawn(tell)


async def _take_in(process: Process, session_id: str) -> bool:
    """Ask the hands for news and post it, as the supervisor's news command does."""
    store, world = StoreDoor(process), process.world
    state, _ = await recall(session_id, store, store, KINDS)
    try:
        found = await gather(ProviderDoor(process), state, state.fence)
    except Fenced:
        return True
    for news in found:
        draft = Draft(new_event_id(ClockDoor(process).now_us(), world.entropy), "system", news.fact)
        receipt = await store.post(Post(session_id, news.key, draft))
        if not receipt.duplicate:
            row = await world.store.find(session_id)
            held = session_id in await world.store.holders()
            delivered = Delivered(session_id, receipt.seq, row.status, row.due_us, world.clock.now_us(), held)
            world.record.delivered.append(delivered)
    return bool(found)


def _turn(script: Script, responses: int, seed: int) -> Turn:
    chance = Random(f"{seed} {script.name} yard {responses}")
    calls = [_call(chance, f"k{script.name}.{responses}.{index}") for index in range(chance.choice((1, 1, 2, 3)))]
    if responses == 0:
        calls[0] = _start(chance, f"k{script.name}.0.0")
    said = f"answer {script.name}.{responses}"
    if responses and chance.random() < 0.3:
        return Turn("", "", said, (), "end_turn", 40, ())
    return Turn("", "", said, tuple(calls), "tool_use", 40, ())


def _start(chance: Random, key: str) -> SaidCall:
    given: dict[str, object] = {
        "name": key,
        "timeout_s": TIMEOUT_S,
        "command": f"{chance.choice(('do', 'fail'))} {key} x",
    }
    if chance.random() < 0.4:
        given["line"] = "done|failed"
    if chance.random() < 0.4:
        given["deadline_s"] = chance.choice((5.0, 600.0))
    return SaidCall("job_start", json.dumps(given), key)


def _call(chance: Random, key: str) -> SaidCall:
    job = {"job_id": f"@{chance.choice((0, 0, 1, 7))}"}
    draw = chance.random()
    if draw < 0.25:
        return _start(chance, key)
    if draw < 0.55:
        given = {} if chance.random() < 0.6 else {"job_ids": [job["job_id"]]}
        return SaidCall("job_wait", json.dumps(given | ({"timeout_s": 900.0} if chance.random() < 0.3 else {})))
    if draw < 0.65:
        return SaidCall("job_log", json.dumps(job))
    if draw < 0.75:
        return SaidCall("job_stop", json.dumps(job))
    if draw < 0.85:
        return SaidCall("sleep", json.dumps({"seconds": chance.choice((3.0, 700.0))}))
    return SaidCall("bash", json.dumps({"command": f"do {key} x"}), key)
