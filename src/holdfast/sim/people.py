"""Users of a simulated world: they open sessions, send messages, answer items, steer, and stop everything.

They use the product's own intake. No weather strikes them, but two of them may act at the same time.
"""

from __future__ import annotations

import asyncio

from holdfast.errors import UsageError
from holdfast.facts.people import Grant, Verdict
from holdfast.facts.session import Agent, ContextPolicy, Limits, People, Rule, SessionCreated, SessionUpdated, Workspace
from holdfast.facts.shift import Period
from holdfast.ids import new_session_id
from holdfast.service.answers import Answer
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from holdfast.session.rows import ItemRow, SessionRow
from holdfast.sim.doors import SPARE, ClockDoor, StoreDoor
from holdfast.sim.process import Process
from holdfast.sim.record import Replied, Said
from holdfast.sim.script import PRICE, Script
from holdfast.sim.world import Session, World

POWERS = (
    "spawn",
    "spawn",
    "spawn",
    "wait_for_children",
    "wait_for_children",
    "message_child",
    "message_child",
    "cancel_child",
    "cancel_child",
    "sleep",
    "ask_person",
    "end_phase",
)
"""Harness tools that the scripts of a family draw from."""

OWN_TOOLS = ("bash", "read", "write", "edit", "glob", "grep")

CHECKED = "- Never edit `src/**`."
"""Project rule that code can check."""

ONE_PICO = PRICE.input * 200 + PRICE.output * 1024
"""Approximate largest cost of a request."""


class Persons:
    """Users of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = Process(world, "people", outside=True)
        self.store = StoreDoor(self.process)
        self.intake = Intake(
            self.store, self.store, ClockDoor(self.process), world.entropy, Caller("user:sim"), world.hands.boot_id
        )

    # --- opening ---

    async def open(self, root: str = "") -> None:
        """Open a session; with `root`, that session's account is on its budget path."""
        world = self.world
        chance = world.chance
        session_id = new_session_id(world.clock.now_us(), world.entropy)
        name = "ab"[len(world.sessions)]
        script = Script(
            name,
            seed=chance.getrandbits(40),
            length=chance.randint(2, 6) if world.family else chance.randint(1, 4),
            trouble=chance.choice((0.0, 0.0, 0.15, 0.5)),
            priced=chance.random() < 0.9,
            powers=self._powers() if world.family else (),
        )
        created = SessionCreated(
            goal=f"goal {name} {chance.getrandbits(20)}",
            agent=Agent(
                model="sim:first",
                system="Be brief." if chance.random() < 0.3 else "",
                tools=(*OWN_TOOLS, *dict.fromkeys(script.powers)),
                rules=self._rules(),
                fallbacks=(f"sim:{SPARE}",) if world.family and chance.random() < 0.3 else (),
            ),
            workspace=Workspace(path=world.workspace(session_id), disposable=True),
            limits=self._limits(script),
            rules=self._pinned(),
            accounts=(session_id, root) if root else (),
            criteria=("it works",) if world.family and chance.random() < 0.3 else (),
            people=self._people() if world.family else People(),
        )
        await self.opened(session_id, created, script)

    async def opened(self, session_id: str, created: SessionCreated, script: Script) -> None:
        """Open a session with that script."""
        self.world.add(Session(session_id, created, script))
        await self.intake.open(session_id, created)

    def _powers(self) -> tuple[str, ...]:
        chance = self.world.chance
        if chance.random() < 0.4:
            return POWERS
        return tuple(chance.choice(POWERS) for _ in range(chance.randint(1, 4)))

    def _rules(self) -> tuple[Rule, ...]:
        chance = self.world.chance
        if self.world.family and chance.random() < 0.6:
            asks = (
                Rule("bash", "ask"),
                Rule("write", "ask", match="notes*"),
                Rule("edit", "ask"),
                Rule("spawn", "ask"),
                Rule("read", "ask", match="src/*"),
            )
            return tuple(chance.sample(asks, chance.randint(1, 3)))
        return (Rule("grep", "deny"), Rule("w*", "deny")) if chance.random() < 0.12 else ()

    def _pinned(self) -> str:
        if self.world.family and self.world.chance.random() < 0.3:
            return CHECKED
        return "No tabs." if self.world.chance.random() < 0.5 else ""

    def _people(self) -> People:
        chance = self.world.chance
        return People(
            owner=chance.choice(("", "sim")),
            expires_s=chance.choice((None, 20.0, 5000.0, 259_200.0)),
            on_expiry=chance.choice(("deny", "deny", "approve")),
        )

    def _limits(self, script: Script) -> Limits:
        world = self.world
        chance = world.chance
        tight = chance.random() < (0.15 if world.family else 0.4) and script.priced
        wide = world.family and chance.random() < 0.6
        return Limits(
            budget_pico=int(ONE_PICO * chance.uniform(0.2, 4.0)) if tight else chance.choice((None, ONE_PICO * 1000)),
            max_turns=chance.choice((2, 200, 200, 200, *([200] * 6 if world.family else []))),
            context_tokens=150_000 if wide else chance.choice((250, 150_000, 150_000, 150_000)),
            max_output_tokens=1024,
            max_attempts=chance.choice((2, 5)),
            max_children=chance.choice((2, 16)),
            context=self._context() if wide else ContextPolicy(strategy="off"),
        )

    def _context(self) -> ContextPolicy:
        chance = self.world.chance
        return ContextPolicy(
            strategy=chance.choice(("auto", "compaction", "compaction", "reset", "hybrid")),
            line_tokens=chance.choice((80, 150, 300)),
            keep_tokens=chance.choice((10, 60)),
            failures=chance.choice((1, 2)),
            signs=chance.random() < 0.3,
            check_every=chance.choice((1, 3)),
        )

    # --- messages ---

    async def act(self) -> None:
        """Take one random action."""
        chance = self.world.chance
        if chance.random() < (0.55 if self.world.family else 0.12):
            await self._steer()
            return
        session = self.any()
        row = await self.store.find(session.session_id)
        draw = chance.random()
        try:
            if draw < 0.45:
                await self._message(session, row)
            elif draw < 0.70:
                receipt = await self.intake.interrupt(row)
                self._said(session, "interrupt", "", receipt.seq, receipt.duplicate)
                if chance.random() < 0.4:
                    await self._message(session, row)
            elif draw < 0.77:
                receipt = await self.intake.cancel(row)
                self._said(session, "cancel", "", receipt.seq, receipt.duplicate)
            else:
                receipt = await self.intake.update(row, self._change(session))
                self._said(session, "update", "", receipt.seq, receipt.duplicate)
        except UsageError:
            self.world.note("people", "refused: the session was cancelled")

    def any(self) -> Session:
        """Return a random session."""
        return self.world.chance.choice(list(self.world.sessions.values()))

    async def _message(self, session: Session, row: SessionRow) -> None:
        chance = self.world.chance
        session.messages += 1
        text = f"word {session.script.name}.{session.messages} from outside"
        key = f"key {session.messages}" if chance.random() < 0.6 else ""
        receipt = await self.intake.send(row, text, key=key)
        self._said(session, key or text, text, receipt.seq, receipt.duplicate)
        if key and chance.random() < 0.5:
            await asyncio.sleep(chance.choice((0.0, 0.2)))
            again = await self.intake.send(row, text, key=key)
            self._said(session, key, text, again.seq, again.duplicate)

    def _said(self, session: Session, key: str, text: str, seq: int, duplicate: bool) -> None:
        self.world.record.said.append(Said(session.session_id, key, text, seq, duplicate))

    def _change(self, session: Session) -> SessionUpdated:
        chance = self.world.chance
        draw = chance.random()
        if draw < 0.6 and session.script.priced:
            return SessionUpdated(budget_pico=int(ONE_PICO * chance.uniform(0.0, 12.0)))
        return SessionUpdated(max_turns=20) if draw < 0.8 else SessionUpdated(context_tokens=150_000)

    # --- steering and answers ---

    async def _steer(self) -> None:
        """Pause, resume, set a cap, stop, release, or, most often, answer an item."""
        chance = self.world.chance
        draw = chance.random()
        if draw < 0.55:
            await self.answer()
            return
        row = await self.store.find(self.any().session_id)
        try:
            if draw < 0.67:
                await self.intake.pause(row, "a moment")
            elif draw < 0.77:
                await self.intake.resume(row)
            elif draw < 0.87:
                await self._cap(row)
            elif draw < 0.94:
                await self.intake.stop_all("all of it")
            else:
                await self.intake.release("go on")
        except UsageError:
            self.world.note("people", "refused")

    async def _cap(self, row: SessionRow) -> None:
        chance = self.world.chance
        period: Period = chance.choice(("total", "total", "day"))
        cap = None if chance.random() < 0.2 else int(ONE_PICO * chance.uniform(0.5, 12.0))
        await self.intake.set_cap(row, chance.choice(row.accounts), period, cap)

    async def answer(self) -> None:
        """Answer an item: in time or late, by one user or two at once, seen before or not."""
        chance = self.world.chance
        items = await self.store.items(open_only=chance.random() < 0.85)
        if not items:
            return
        item = chance.choice(items)
        if chance.random() < 0.7:
            await self.intake.seen(item)
        if chance.random() < 0.3:
            return
        if chance.random() < 0.3:
            await asyncio.sleep(chance.choice((0.01, 1.0, 30.0)))
        verdicts: list[Verdict] = ["approve" if chance.random() < 0.7 else "deny"]
        if chance.random() < 0.3:
            verdicts.append(chance.choice(("approve", "deny")))
        await asyncio.gather(*(self._reply(item, verdict) for verdict in verdicts))

    async def _reply(self, item: ItemRow, verdict: Verdict) -> None:
        chance = self.world.chance
        grant: Grant | None = None
        seq = 0
        try:
            if verdict == "approve" and item.kind == "tool" and chance.random() < 0.2:
                grant = await self.intake.grant_for(item, for_s=3000.0, uses=chance.choice((None, 1)), match=None)
            note = f"so be it {chance.getrandbits(10)}" if chance.random() < 0.7 else ""
            digest = "0" * 64 if chance.random() < 0.05 else ""
            receipt = await self.intake.answer(item, Answer(verdict=verdict, note=note, digest=digest, grant=grant))
            seq = receipt.seq
        except UsageError as refused:
            self.world.note("people", f"{item.item_id[-4:]} {verdict}: {type(refused).__name__}")
        self.world.record.replied.append(Replied(item.item_id, verdict, seq))

    # --- the end of the storm ---

    async def settle(self) -> None:
        """Release stops, resume paused sessions, and answer most items, in calm weather."""
        chance = self.world.chance
        await self.intake.release("calm")
        for row in await self.store.sessions():
            if row.status == "parked" and row.reason == "person" and chance.random() < 0.7:
                await self.intake.resume(row)
        for item in await self.store.items():
            draw = chance.random()
            if draw < 0.5:
                await self._reply(item, chance.choice(("approve", "approve", "deny")))
            elif draw < 0.85:
                await self.intake.seen(item)
