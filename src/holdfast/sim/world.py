"""Simulated world of one seed: time, chance, weather, log, and hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildOpened, ShiftEnded, ShiftStarted
from holdfast.facts.tool import JobEnded, JobStarted, ToolDispatched, ToolOutcomeUnknown
from holdfast.hands.base import ExecRequest
from holdfast.hands.fake.calls import Files
from holdfast.hands.fake.provider import FakeProvider
from holdfast.log.chain import StoredEvent
from holdfast.log.memory import MemoryStore
from holdfast.log.transaction import Transaction
from holdfast.log.verify import Beside, Verified
from holdfast.session.home import HOME, home_created
from holdfast.sim.loop import VirtualLoop
from holdfast.sim.record import Commit, CommitKind, Effect, EndSaid, Known, Mishap, Record, Testimony
from holdfast.sim.script import Script

START_US = 1_790_000_000_000_000
"""Wall time at which every world begins."""

GRACE_S = 30.0
"""Seconds after which unclaimed hands end themselves."""


FAMILIES = 0.35
"""Share of worlds in which sessions spawn children, ask approvers, and renew their contexts."""


@dataclass(frozen=True)
class Weather:
    """Fault rates per door call, drawn for each seed, many of them 0.

    `kill`, `freeze`, and `stop` hit the calling process, `delay` makes it wait, `full` makes the log refuse.
    `hands_die` is per execution; `worn` hands accept no new call; `no_hands` is the rate of failed provisioning,
    `echo` of lost answers to a start, which is then repeated, and `stuck` of a supervisor that hangs for a while.
    """

    kill: float
    freeze: float
    stop: float
    delay: float
    full: float
    hands_die: float
    worn: float
    no_hands: float
    echo: float
    stuck: float


def draw_weather(chance: Random) -> Weather:
    """Draw the weather of a seed. Each fault is absent in some seeds, so that none hides the others."""

    def rate(share: float, most: float) -> float:
        return chance.uniform(most / 8, most) if chance.random() < share else 0.0

    return Weather(
        kill=rate(0.7, 0.04),
        freeze=rate(0.5, 0.02),
        stop=rate(0.3, 0.01),
        delay=chance.uniform(0.1, 0.7),
        full=rate(0.15, 0.02),
        hands_die=rate(0.5, 0.5),
        worn=rate(0.15, 0.2),
        no_hands=rate(0.2, 0.2),
        echo=rate(0.3, 0.2),
        stuck=rate(0.15, 0.03),
    )


CALM = Weather(0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Weather without faults."""


class VirtualClock:
    """Clock of the world. Wall time can jump; durations cannot."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.jumped_us = 0

    def now_us(self) -> int:
        return START_US + int(self._loop.time() * 1_000_000) + self.jumped_us

    def monotonic_s(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


@dataclass
class Session:
    """Session of the world: its creation, its model's script, and its log.

    `holder` is the worker of an unfinished shift, `dispatched` the hands of each call's latest dispatch, `children` the
    sessions and jobs that it opened, with their positions; `born` counts the sessions.
    """

    session_id: str
    created: SessionCreated
    script: Script
    head: int = 0
    holder: str = ""
    messages: int = 0
    born: int = 0
    children: list[tuple[int, str]] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    dispatched: dict[str, str] = field(default_factory=dict)

    def follow(self, event: Event) -> None:
        """Follow one more event."""
        self.head = event.seq
        self.hashes.append(event.hash)
        match event.fact:
            case ShiftStarted(worker_id=worker_id):
                self.holder = worker_id
            case ShiftEnded():
                self.holder = ""
            case ToolDispatched(call_id=call_id, hands_id=hands_id):
                self.dispatched[call_id] = hands_id
            case ChildOpened(child_id=child_id):
                self.children.append((event.seq, child_id))
            case JobStarted(job_id=job_id):
                self.children.append((event.seq, job_id))

    def children_before(self, seq: int) -> list[str]:
        """Return the sessions and jobs opened before that position, in order."""
        return [child_id for at, child_id in self.children if at < seq]


class WatchedStore(MemoryStore):
    """Log in memory, with the events of its latest transaction."""

    latest: tuple[Event, ...] = ()

    def _commit(self, transaction: Transaction) -> None:
        super()._commit(transaction)
        self.latest = tuple(sealed.event for sealed in transaction.sealed)


class World:
    """State that all simulated processes of a seed share."""

    def __init__(self, seed: int, *, family: bool | None = None) -> None:
        self.seed = seed
        self.chance = Random(f"holdfast world {seed}")
        self.weather = draw_weather(self.chance)
        self.loop = VirtualLoop(Random(self.chance.getrandbits(64)))
        self.loop.set_exception_handler(self._broken)
        self.clock = VirtualClock(self.loop)
        self.entropy = Random(self.chance.getrandbits(64)).randbytes
        self.store = WatchedStore(self.clock, self.entropy)
        self.hands = FakeProvider(
            self.clock, effect=self._command, pace=self._pace, boot_id="boot-1", on_news=self._news
        )
        self.told: Callable[[str, str, str], None] | None = None
        self.on_death: Callable[[str], None] | None = None
        self.sessions: dict[str, Session] = {}
        self.named: dict[str, Session] = {}
        created = home_created().fact
        assert isinstance(created, SessionCreated)
        self.home = Session(HOME, created, Script("home", 0, 0, 0.0, priced=False))
        self.record = Record()
        self.provisioned: dict[str, HandsProvisioned] = {}
        self.owners: dict[str, str] = {}
        self.shown: dict[str, int] = {}
        self.claims: dict[str, set[str]] = {}
        self.worn: set[str] = set()
        self.stuck_until: dict[str, float] = {}
        self.eager = self.chance.random() < 0.1
        drawn = self.chance.random() < FAMILIES
        self.family = drawn if family is None else family
        self.width = self.chance.choice((1, 1, 4)) if self.family else 1
        self.live: set[str] = set()
        self.boots = 1
        self._lasts_s = 0.0
        self.stored: dict[str, list[StoredEvent]] = {}
        self.events: dict[str, list[Event]] = {}
        self.beside = Beside()
        self.verified = Verified(0, 0, ())

    def note(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.record.trace.append((self.loop.time(), who, what))

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an error of a background callback, such as the hands'."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.record.mishaps.append(Mishap(self.record.tick(), "world", error))

    def happens(self, rate: float) -> bool:
        """Draw whether an event of that rate happens now. A rate of 0 draws nothing."""
        return rate > 0.0 and self.chance.random() < rate

    def committed(self, who: str, kind: CommitKind, epoch: int, head: int | None, *, steal: bool = False) -> None:
        """Record the store's latest transaction."""
        written: dict[str, list[Event]] = {}
        for event in self.store.latest:
            written.setdefault(event.session_id, []).append(event)
        transaction = self.record.tick()
        for number, (session_id, events) in enumerate(written.items()):
            session = self.home if session_id == HOME else self.sessions.get(session_id) or self._born(events[0])
            held = session.holder in self.live
            mine = number == 0
            commit = Commit(
                tick=self.record.tick(),
                at_s=self.loop.time(),
                who=who,
                kind=kind if mine else "post",
                session_id=session_id,
                epoch=epoch if mine else 0,
                head=head if mine else None,
                events=tuple(events),
                transaction=transaction,
                held=held,
                steal=steal,
            )
            self._take(session, commit)

    def _take(self, session: Session, commit: Commit) -> None:
        """Record what a transaction wrote to one session."""
        record = self.record
        record.commits.append(commit)
        for event in commit.events:
            match event.fact:
                case ToolOutcomeUnknown(call_id=call_id):
                    record.testimonies.append(self._testimony(session, event.seq, call_id))
                case ToolDispatched(call_id=call_id, attempt=attempt) if attempt > 1:
                    record.testimonies.append(self._testimony(session, event.seq, call_id))
                case JobEnded(job_id=job_id, outcome=outcome):
                    known = self._testimony(session, event.seq, job_id.removeprefix("job_"))
                    record.ends.append(EndSaid(job_id, outcome, known.state))
            session.follow(event)
            self.note(commit.who, f"{session.script.name} #{event.seq} e{event.epoch} {event.type}")

    def _born(self, event: Event) -> Session:
        """Add a child session, with a script that follows from its parent's."""
        created = event.fact
        assert isinstance(created, SessionCreated)
        assert created.parent is not None
        parent = self.sessions[created.parent.session_id]
        born = Session(event.session_id, created, parent.script.child(created.parent.call_id, parent.born))
        parent.born += 1
        self.add(born)
        return born

    def add(self, session: Session) -> None:
        """Add a session to the world."""
        self.sessions[session.session_id] = session
        self.named[session.script.name] = session

    def _testimony(self, session: Session, seq: int, call_id: str) -> Testimony:
        """Return the knowledge of the latest dispatch's hands about a call, read without a door call."""
        identity = self.provisioned.get(session.dispatched.get(call_id, ""))
        made = self.hands.find(identity) if identity is not None else None
        state: Known = "gone"
        if made is not None:
            call = made.calls.get(call_id)
            if call is None:
                state = "never_started"
            elif call.result is not None:
                state = "finished"
            else:
                state = "unknown" if made.gone else "running"
        return Testimony(self.record.tick(), session.session_id, seq, call_id, state)

    def died(self, worker_id: str) -> None:
        """End the leases of a worker that is gone or presumed gone."""
        self.live.discard(worker_id)
        self.store.worker_died(worker_id)
        if self.on_death is not None:
            self.on_death(worker_id)

    def workspace(self, session_id: str) -> str:
        """Create a session's workspace, which counts every write, and return its path."""
        path = f"/{session_id}"
        self.hands.workspaces[path] = _WatchedFiles(self)
        return path

    # --- hands: actions, durations, and deaths ---

    def _command(self, command: str, files: Files) -> tuple[int, str]:
        word, key, path = command.split()
        assert isinstance(files, _WatchedFiles)
        self.effect(key)
        if word == "touch":
            files.quietly(f"/workspace/{path}", f"mark {key}\n".encode())
        return (1, f"{key} failed") if word == "fail" else (0, f"{key} done")

    def effect(self, key: str) -> None:
        """Record a real effect of the session whose script has that key."""
        self.note("hands", f"effect {key}")
        session = self.named[key[1:].partition(".")[0]]
        self.record.effects.append(Effect(self.record.tick(), session.session_id, key, session.head))

    def _pace(self, call_id: str, request: ExecRequest) -> tuple[float, float]:
        chance = self.chance
        longest = chance.choice((4.0, 4.0, 20.0)) if request.tool == "bash" else 0.2
        before, after = chance.uniform(0.0, longest), chance.uniform(0.0, longest / 2)
        if request.tool == "job":
            before, after = chance.choice((1.0, 900.0, 4_000.0)) * chance.random(), 0.0
        elif chance.random() < 0.3:
            before = 0.0
        self.loop.call_later(before, self.hands.settle)
        self.loop.call_later(before + after, self.hands.settle)
        self._lasts_s = before + after
        return before, after

    def _news(self, session_id: str, call_id: str, news: str) -> None:
        self.note("hands", f"news of {call_id}: {news}")
        if self.told is not None:
            self.told(session_id, call_id, news)

    def tempt(self, hands_id: str) -> None:
        """Let hands die while a call runs, or right after it, by the weather."""
        if self.happens(self.weather.hands_die):
            self.loop.call_later(self.chance.uniform(0.0, 1.2) * self._lasts_s, self.lose, hands_id)

    def lose(self, hands_id: str, reason: str = "killed") -> None:
        """Kill an incarnation of hands if it is alive."""
        if hands_id in self.hands.alive():
            self.note("hands", f"{hands_id[-4:]} gone: {reason}")
            self.record.kills += 1
            self.hands.lose(hands_id, reason)

    def reboot(self) -> None:
        """Reboot the host: every incarnation is gone, and none can testify."""
        self.boots += 1
        self.note("host", f"boot {self.boots}")
        self.hands.reboot(f"boot-{self.boots}")

    def unclaim(self, who: str) -> None:
        """Drop a process's claims; unclaimed hands end themselves after `GRACE_S`."""
        for hands_id, claims in self.claims.items():
            if who in claims:
                claims.discard(who)
                if not claims:
                    self.loop.call_later(GRACE_S, self._idle, hands_id)

    def _idle(self, hands_id: str) -> None:
        if self.claims[hands_id] or hands_id not in self.hands.alive():
            return
        self.hands.settle()
        made = self.hands.find(self.provisioned[hands_id])
        if made is not None and any(call.running for call in made.calls.values()):
            self.loop.call_later(GRACE_S, self._idle, hands_id)
        else:
            self.lose(hands_id, "unclaimed")


class _WatchedFiles(Files):
    """Workspace files that record each write as an effect of the call whose key it carries."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __setitem__(self, path: str, content: bytes) -> None:
        super().__setitem__(path, content)
        words = content.split()
        self._world.effect(words[1].decode())

    def quietly(self, path: str, content: bytes) -> None:
        """Write without recording an effect, since the command was recorded."""
        super().__setitem__(path, content)
