"""Homes whose workers share one database, and the weather: lost messages, stopped processes, restarts, promotions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial

from holdfast.facts.base import Text
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.log.base import Post
from holdfast.sim.leases.database import TTL_S
from holdfast.sim.leases.process import Process, Scene, Trouble
from holdfast.sim.loop import Stuck

FAULTS = (
    *("kill", "stop", "stop", "stop", "hang", "cut", "slow", "slow", "restart", "promote", "promote", "worst", "drain"),
    *("post",) * 4,
)

REST_S = 240.0
"""Time of calm within which every session must rest."""


class World(Scene):
    """A scene with its weather."""

    def spawn(self, place: str) -> None:
        """Start a worker at a home."""
        process = Process(self, f"wrk_{len(self.processes)}", place, self.rates[place])
        self.processes.append(process)
        now_s = self.loop.time()
        troubles_s = [self.slow_until_s, *(until_s for (_, at), until_s in self._cuts.items() if at == place)]
        process.troubles += [Trouble(now_s, until_s) for until_s in troubles_s if until_s > now_s]
        self.start(process.beat())
        self.start(process.serve())

    def living(self) -> list[Process]:
        """The processes that were not killed, stopped ones too."""
        return [process for process in self.processes if process.alive]

    async def live(self) -> None:
        """Live through the weather, then through calm."""
        chance = self.chance
        for session_id in self.sessions:
            fact = SessionCreated("g", Agent("m"), Workspace("/w", disposable=True))
            self.database.post(Post(session_id, "created", self.draft(fact)), create=True)
        for place in self.places:
            for _ in range(chance.randint(1, 4 - len(self.places))):
                self.spawn(place)
        for _ in range(chance.randint(4, 14)):
            await asyncio.sleep(chance.choice((0.3, 2.0, 6.0, 20.0)))
            await self.fault(chance.choice(FAULTS))
            for place in self.places:
                if chance.random() < 0.5 and not any(each.place == place for each in self.living()):
                    self.spawn(place)
        self.calm_s = self.loop.time()
        await self._calm()

    async def _calm(self) -> None:
        self._cuts.clear()
        self.slow_until_s = 0.0
        for process in self.living():
            process.stopped_until_s = process.hung_until_s = 0.0
        if not any(not each.draining for each in self.living()):
            self.spawn(self.places[0])
        until_s = self.loop.time() + REST_S
        while self.loop.time() < until_s:
            await asyncio.sleep(2.0)
            if all(row.status != "runnable" and not row.holder for row in self.database.tables.rows.values()):
                return
        rows = {row.session_id: (row.status, row.holder) for row in self.database.tables.rows.values()}
        raise Stuck(f"no rest after {REST_S:.0f} s of calm: {rows}")

    # --- weather ---

    async def fault(self, kind: str) -> None:
        """One event of the weather."""
        chance = self.chance
        self.counts[kind] += 1
        match kind:
            case "post" if self.database.up:
                message = self.draft(UserMessage(content=(Text("go on"),)))
                self.database.post(Post(chance.choice(self.sessions), message.id, message))
            case "restart":
                await self._away(chance.choice((1.0, 5.0, 7.0, 12.0)), self.database.start)
            case "promote":
                lose = chance.choice((0, 1, 2, 3, 5))
                await self._away(chance.choice((1.0, 5.0, 12.0)), partial(self.database.promote, lose))
            case "worst":
                await self._worst()
            case "cut":
                self._cut()
            case "slow":
                self.slow_until_s = self.loop.time() + 30.0
                for process in self.living():
                    process.troubles.append(Trouble(self.loop.time(), self.slow_until_s))
            case _ if self.living():
                self._strike(chance.choice(self.living()), kind)
            case _:
                pass

    def _cut(self) -> None:
        """Messages of one home, or of all, do not pass in one direction, or in both."""
        chance, now_s = self.chance, self.loop.time()
        ways = chance.choice((("to",), ("from",), ("to", "from")))
        everywhere = chance.random() < 0.3
        places = self.places if everywhere else [chance.choice(self.places)]
        until_s = now_s + chance.choice((2.0, 5.0, 9.0, 20.0))
        self._cuts |= {(way, place): until_s for way in ways for place in places}
        shared = everywhere and until_s > now_s + TTL_S
        for process in self.living():
            if process.place in places:
                process.troubles.append(Trouble(now_s, until_s, shared))

    def _strike(self, process: Process, kind: str) -> None:
        """One process is killed, stopped, or asked to end, or its event loop hangs."""
        now_s = self.loop.time()
        until_s = now_s + self.chance.choice((3.0, 7.0, 12.0, 30.0))
        lasts_s = until_s if kind in ("stop", "hang") else math.inf
        process.troubles.append(Trouble(now_s, lasts_s, alone=kind != "drain", held=tuple(sorted(process.held))))
        process.stops += 1
        process.alive = process.alive and kind != "kill"
        process.draining = process.draining or kind == "drain"
        if kind == "stop":
            process.stopped_until_s = until_s
        elif kind == "hang":
            process.hung_until_s = until_s

    async def _worst(self) -> None:
        """Stop a process that is about to begin an effect; others may lose the latest commits meanwhile."""
        for _ in range(100):
            about = [process for process in self.living() if process.begins]
            if about:
                until_s = self.loop.time() + self.chance.choice((12.0, 30.0))
                about[0].troubles.append(Trouble(self.loop.time(), until_s))
                about[0].stopped_until_s, about[0].stops = until_s, about[0].stops + 1
                lose = self.chance.choice((0, 0, 1, 2, 3, 5))
                await self._away(1.0, partial(self.database.promote, lose) if lose else self.database.start)
                return
            await asyncio.sleep(0.05)

    async def _away(self, seconds: float, back: Callable[[], None]) -> None:
        """The database is away, then back, or a standby in its place."""
        began_s, losses = self.loop.time(), len(self.database.losses_s)
        self.database.up = False
        await asyncio.sleep(seconds)
        back()
        whole = len(self.database.losses_s) == losses
        shared = whole and (seconds > TTL_S or back == self.database.start)
        for process in self.living():
            process.troubles.append(Trouble(began_s, self.loop.time(), shared))
