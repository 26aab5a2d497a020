"""Processes of a simulated world of leases: a worker each, at a home, as a client of the shared database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

from holdfast.errors import Fenced, HeadMoved, LeaseHeld, LogUnavailable
from holdfast.facts.codec import Draft, Event
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.log.base import Lease
from holdfast.log.pulse import Pulse
from holdfast.log.transaction import Transaction, ready
from holdfast.sim.leases.database import TTL_S, Commit, Database
from holdfast.sim.loop import VirtualLoop

T = TypeVar("T")

LOOK_S, PATIENCE_S, SILENCE_S = 1.0, 120.0, 2.0
"""Interval of looks for due sessions, patience with a database that is away, and time until a call counts as lost."""

SESSIONS = 5
"""Most sessions of a world, which one worker can run."""

RATES = (0.9, 1.0, 1.1)
"""Speeds of clocks: no two differ by a quarter."""

SETTLED_S = 2.5 * TTL_S
"""Time without any trouble after which a worker surely counts as alive everywhere."""


class Lost(Exception):
    """A message to or from the database did not arrive."""


@dataclass(frozen=True)
class Effect:
    """An effect that hands began: when, and for whom. `stops` counts the strikes since its lease was confirmed."""

    at_s: float
    session_id: str
    lease: Lease
    stops: int


class Sandbox:
    """Hands of one session at one home: they refuse a fence below one already seen (S9)."""

    def __init__(self) -> None:
        self.seen = 0
        self.owner = ""

    def fence(self, number: int, owner: str) -> None:
        """Refuse lower fences from now on."""
        self._check(number)
        self.seen, self.owner = number, owner

    def begin(self, number: int) -> str:
        """Begin an effect. Returns whose fence was the last one."""
        self._check(number)
        return self.owner

    def _check(self, number: int) -> None:
        if number < self.seen:
            raise Fenced("a later fence was seen", mine=number, current=self.seen)


@dataclass(frozen=True)
class Trouble:
    """A time in which a worker may look dead; in a `shared` one, those that could take its sessions had it too.

    One that it has `alone` makes it silent while it holds some sessions.
    """

    from_s: float
    until_s: float
    shared: bool = False
    alone: bool = False
    held: tuple[str, ...] = ()


@dataclass
class Process:
    """A process with one worker, at a home. `troubles` are the times of all that could make it look dead."""

    world: Scene
    name: str
    place: str
    rate: float
    alive: bool = True
    stopped_until_s: float = 0.0
    hung_until_s: float = 0.0
    troubles: list[Trouble] = field(default_factory=list)
    stops: int = 0
    running: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    sure: dict[str, int] = field(default_factory=dict)
    draining: bool = False
    begins: bool = False

    def __post_init__(self) -> None:
        self.pulse = Pulse(TTL_S)
        self.began_s = self.world.loop.time()

    def boot_s(self) -> float:
        """Time since the boot of its machine; it goes on while the process is stopped."""
        return self.world.loop.time() * self.rate

    async def sleep(self, seconds: float, *, thread: bool = False) -> None:
        """Wait. A stopped process goes on once continued, one that hangs once it answers; a thread never hangs."""
        left_s = seconds
        while left_s > 0.0:
            await asyncio.sleep(left_s)
            left_s = max(self.stopped_until_s, 0.0 if thread else self.hung_until_s) - self.world.loop.time()
        if not self.alive:
            raise asyncio.CancelledError

    async def ask(self, work: Callable[[], T], *, thread: bool = False) -> T:
        """Run `work` at the database. Raises `Lost` if it was not reached, or if its answer was lost."""
        world, database = self.world, self.world.database
        await self.sleep(world.delay_s(), thread=thread)
        starts = database.starts
        if not world.passes("to", self.place):
            await self.sleep(SILENCE_S, thread=thread)
            raise Lost
        try:
            return work()
        finally:
            await self.sleep(world.delay_s(), thread=thread)
            if starts != database.starts or not world.passes("from", self.place):
                await self.sleep(SILENCE_S, thread=thread)
                raise Lost

    async def transact(self, work: Callable[[Transaction], T]) -> T:
        """Run a transaction to its known end: a commit without an answer is looked up before it is made again."""
        world, unanswered = self.world, list[tuple[Commit, T]]()

        def attempt() -> T:
            for commit, result in unanswered:
                link = world.database.tables.link_at(commit.last.session_id, commit.last.seq)
                if same(link, commit.last):
                    return result
            result, made = world.database.run(self.name, work)
            if made is not None:
                unanswered.append((made, result))
            return result

        began_s = self.boot_s()
        while self.boot_s() < began_s + PATIENCE_S:
            try:
                result = await self.ask(attempt)
                world.acknowledged += [commit.last for commit, _ in unanswered[-1:]]
                return result
            except Lost:
                await self.sleep(world.chance.uniform(0.1, 1.0))
        raise LogUnavailable("the database stayed away")

    # --- its tasks ---

    async def beat(self) -> None:
        """Beat as the thread of a real one does: while the event loop answers."""
        database = self.world.database
        while True:
            if self.pulse.may_beat(self.boot_s()):
                sent_s, limits = self.boot_s(), dict(self.pulse.limits)
                try:
                    await self.ask(lambda: database.beat(self.name, self.place), thread=True)
                    self.pulse.acknowledged(limits, sent_s, self.boot_s())
                except Lost:
                    pass
            if self.world.loop.time() >= self.hung_until_s:
                self.pulse.looped(self.boot_s())
            await self.sleep(TTL_S / 4 / self.rate, thread=True)

    async def serve(self) -> None:
        """Run due sessions."""
        database = self.world.database
        self.pulse.enroll(self.name, self.boot_s(), SESSIONS)
        while not (self.draining and not self.running):
            try:
                await self.until_fresh()
                due = await self.ask(lambda: database.due(self))
            except (Lost, LogUnavailable):
                due = []
            for session_id in due:
                if session_id not in self.running and not self.draining:
                    self.running.add(session_id)
                    self.world.start(self.work(session_id))
            await self.sleep(LOOK_S)
        self.alive = False
        database.workers.pop(self.name, None)

    @property
    def is_wary(self) -> bool:
        """See `Pulse.is_wary`."""
        return self.pulse.is_wary(self.boot_s())

    def lives(self, session_id: str, holder: str, living: Mapping[str, str]) -> bool:
        """See `Seat.lives`. What this worker holds by the log alone, a lost commit ended."""
        if holder == self.name:
            return session_id in self.held
        return holder in living and (living[holder] != self.place or self.world.locks(holder))

    async def until_fresh(self) -> None:
        """Wait for an acknowledged beat. Raises `LogUnavailable` after a long time."""
        began_s = self.boot_s()
        while not self.pulse.is_fresh(self.boot_s()):
            if self.boot_s() > began_s + PATIENCE_S:
                raise LogUnavailable("no beat arrives")
            await self.sleep(0.2)

    async def confirm(self, lease: Lease) -> None:
        """See `PostgresStore.confirm`."""
        while not self.pulse.is_fresh(self.boot_s()) or self.sure[lease.session_id] != self.pulse.lapses:
            await self.until_fresh()
            lapses = self.pulse.lapses
            row = await self.transact(lambda now: now.row(lease.session_id))
            assert row is not None
            if row.epoch != lease.epoch or row.holder != lease.worker_id:
                raise Fenced("it was taken", mine=lease.epoch, current=row.epoch)
            self.sure[lease.session_id] = lapses

    async def work(self, session_id: str) -> None:
        """Run one shift: some effects, each dispatched, confirmed, begun, and recorded."""
        world = self.world
        try:
            await self.until_fresh()
            draft = world.draft(ShiftStarted(self.name, "", "", 1, "", place=self.place))
            lease = await self.transact(lambda now: world.database.acquire(now, session_id, draft, self))
            self.held.add(session_id)
            try:
                await self._shift(session_id, lease)
            finally:
                if self.alive:
                    await self.transact(lambda now: now.release(lease, world.draft(ShiftEnded(status="released")).id))
                    self.held.discard(session_id)
        except (LeaseHeld, Fenced, HeadMoved, LogUnavailable) as error:
            world.counts[type(error).__name__] += 1
        finally:
            self.running.discard(session_id)

    async def _shift(self, session_id: str, lease: Lease) -> None:
        world, fence = self.world, lease.events[-1].fence
        sandbox = world.sandboxes.setdefault((session_id, self.place), Sandbox())
        sandbox.fence(fence, lease.events[-1].id)
        head = lease.events[-1].seq
        for number in range(world.chance.randint(1, 6)):
            call_id = f"{lease.epoch}.{number}"
            dispatched = ToolDispatched(call_id, 1, "hnd_a", "d", "tell", 1.0)
            self.begins = True
            head = await self._append(lease, dispatched, head)
            await self.confirm(lease)
            stops = self.stops
            await self.sleep(0.2)
            self.begins = False
            owner = sandbox.begin(fence)
            effect = Effect(world.loop.time(), session_id, lease, self.stops - stops)
            world.effects.append(effect)
            if owner != lease.events[-1].id:
                world.wrong.append(f"hands: {session_id} began an effect of {self.name} after another fence")
            await self.sleep(world.chance.choice((0.1, 0.1, 1.0, 4.0, 15.0)))
            head = await self._append(lease, ToolResult(call_id=call_id, outcome="ok", content=""), None)
            if self.draining:
                return
        await self._append(lease, ShiftEnded(status="parked", reason="person"), head)

    async def _append(self, lease: Lease, fact: AnyFact, head: int | None) -> int:
        """Append a decision, or without a head a fact. A decision is made again on a later head."""
        made = ready(self.world.draft(fact))
        while True:
            lapses = self.pulse.lapses
            try:
                events = await self.transact(
                    partial(
                        Transaction.append,
                        session_id=lease.session_id, epoch=lease.epoch, drafts=[made], head=head, posts=(),
                        holder=lease.worker_id,
                    )
                )  # fmt: skip
                self.sure[lease.session_id] = lapses
                return events[-1].seq
            except HeadMoved as moved:
                head = moved.head


def same(link: tuple[bytes, int] | None, event: Event) -> bool:
    """Return True if that is the stored link of the event."""
    return link is not None and link[0] == event.hash


class Scene:
    """All that the processes of one seed share."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(f"holdfast leases {seed}")
        self.loop = VirtualLoop(Random(chance.getrandbits(64)), steps_max=400_000)
        self.database = Database(self.loop.time, chance.choice(RATES))
        self.places = [f"plc_{number}" for number in range(chance.choice((1, 1, 2, 2, 3)))]
        self.rates = {place: chance.choice(RATES) for place in self.places}
        self.sessions = [f"ses_{number}" for number in range(chance.randint(2, SESSIONS))]
        self.processes: list[Process] = []
        self.sandboxes: dict[tuple[str, str], Sandbox] = {}
        self.effects: list[Effect] = []
        self.acknowledged: list[Event] = []
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._cuts: dict[tuple[str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._drafts = 0
        self.slow_until_s = self.calm_s = 0.0

    def draft(self, fact: AnyFact) -> Draft:
        """A draft with a new id."""
        self._drafts += 1
        return Draft(f"evt_{self._drafts:026d}", "brain", fact)

    def locks(self, worker: str) -> bool:
        """Return True while the kernel holds a worker's lock, even for a stopped process."""
        return any(each.name == worker and each.alive for each in self.processes)

    def delay_s(self) -> float:
        """Time that a message takes."""
        late = self.loop.time() < self.slow_until_s and self.chance.random() < 0.5
        return self.chance.uniform(0.5, 1.9) if late else self.chance.uniform(0.001, 0.05)

    def passes(self, way: str, place: str) -> bool:
        """Return True while messages to or from the database arrive."""
        return self.database.up and self._cuts.get((way, place), 0.0) <= self.loop.time()

    def start(self, task: Coroutine[None, None, None]) -> None:
        """Run a task of a process, which ends at its next step after the process was killed."""
        made = self.loop.create_task(task)
        self._tasks.add(made)
        made.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.wrong.append(f"error: {type(error).__name__}: {error}")
