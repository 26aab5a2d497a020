"""One shift: a brain's lease on a session, the folded state, its appends, and the acts of the kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from holdfast.brain.doors import Doors, uptime
from holdfast.brain.recall import remember, shown
from holdfast.errors import Fenced
from holdfast.facts.base import Fact, text_of
from holdfast.facts.codec import Draft, Event
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.session import Service
from holdfast.facts.shift import ClockSet, ShiftEnded
from holdfast.hands.base import ExecResult, Hands
from holdfast.ids import new_event_id
from holdfast.log.base import Lease, Post
from holdfast.model.base import Model
from holdfast.session.actions import Action
from holdfast.session.context.window import needed
from holdfast.session.decide import decide
from holdfast.session.fold import fold
from holdfast.session.fold.clock import was_set
from holdfast.session.state import Call, ResponseItem, State

T = TypeVar("T")
U = TypeVar("U")


async def alongside(work: Callable[[], Awaitable[T]], watcher: Callable[[], Coroutine[Any, Any, None]]) -> T:
    """Return the result of `work`, with `watcher` running beside it. An error of either is raised unwrapped."""
    result: list[T] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watcher)
            result.append(await work())
            group.cancel_scope.cancel()
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from None
    return result[0]


async def together(works: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run works concurrently and return their results. The first error is raised unwrapped and cancels the others."""
    results: dict[int, T] = {}

    async def one(number: int, work: Callable[[], Awaitable[T]]) -> None:
        results[number] = await work()

    try:
        async with anyio.create_task_group() as group:
            for number, work in enumerate(works):
                group.start_soon(one, number, work)
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from None
    return [results[number] for number in sorted(results)]


async def both(one: Callable[[], Awaitable[T]], other: Callable[[], Awaitable[U]]) -> tuple[T, U]:
    """Run two works concurrently, as in `together`, and return both results."""
    works: list[Callable[[], Awaitable[Any]]] = [one, other]
    first, second = await together(works)
    return first, second


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first plain error inside nested groups."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


SNAPSHOT_EVERY = 500
"""Events between two snapshots inside a shift."""


class Shift:
    """One shift, shared by all acts.

    `state` is always the fold of a prefix of the log, and never behind an append of this shift. `provisioned` is set
    while hands are being created, and afterwards if that failed; `keeping` while a workspace snapshot is being taken.
    `decided_at` is the head on which the running action was decided. `room_waits` counts consecutive waits for budget
    or requests that others use, `probes` numbers the probes of files. `standing` are the services that the environment
    starts in all hands. `pushed` is the configuration last sent to the proxy: the digest of the policy and the held
    secrets; `noting` is locked while the proxy's journal is read, `opening` while a function opens a child. `acts` are
    the acts of the session's kind.
    """

    background: TaskGroup
    """Task group for work beside the model request, such as creating hands. Set while the shift runs."""

    def __init__(self, doors: Doors, state: State, lease: Lease, bodies: dict[int, Fact]) -> None:
        self.doors = doors
        self._models: dict[str, Model] = {}
        self.state = state
        self.lease = lease
        self.decided_at = state.seq
        self.hands: Hands | None = None
        self.provisioned: anyio.Event | None = None
        self.provision_error: Exception | None = None
        self.keeping: anyio.Event | None = None
        self.standing: tuple[Service, ...] = ()
        self.room_waits = 0
        self.pushed: tuple[str, tuple[str, ...], bool] | None = None
        self.noting = anyio.Lock()
        self.opening = anyio.Lock()
        self.probes = 0
        acts = doors.kinds.acts(state.tenant.kind.name)(self)
        assert isinstance(acts, Acts)
        self.acts = acts
        self._bodies = bodies
        self._lock = anyio.Lock()
        self._remembered = state.seq
        self._clock = self.look_at_clock()

    @property
    def epoch(self) -> int:
        """The epoch of this shift's lease."""
        return self.lease.epoch

    @property
    def fence(self) -> int:
        """Number by which hands know this shift: requests with a lower one are refused (S9).

        A replay has no events of its own: its hands know its epoch.
        """
        return self.lease.events[-1].fence if self.lease.events else self.epoch

    def model(self, name: str) -> Model:
        """Return a model of the agent's chain, opened once. Raises `UsageError` when its name is no longer known."""
        if name not in self._models:
            self._models[name] = self.doors.model(name)
        return self._models[name]

    def look_at_clock(self) -> ClockSet:
        """Read the wall clock. Waiting decisions carry the latest reading, which precedes them."""
        up = uptime(self.doors.clock, self.doors.worker.boot_id)
        booted_us = self.doors.clock.now_us() - up.us
        self._clock = ClockSet(boot_id=up.boot_id, booted_us=booted_us, up_us=up.us)
        return self._clock

    async def decision(self, *facts: Fact, posts: Sequence[Post] = ()) -> list[Event]:
        """Append under the epoch and the head of the decision (S2), with posts to other sessions (S4).

        What was decided may begin when it returns: the lease is confirmed after the append. Raises `HeadMoved` if an
        event arrived since: refresh, decide again.
        """
        events = await self._append(facts, posts, head=True)
        await self.doors.leases.confirm(self.lease)
        return events

    async def fact(self, *facts: Fact, posts: Sequence[Post] = ()) -> list[Event]:
        """Append the outcome of an effect, under the epoch alone (S2), after a new reading if the clock was set: a wait
        may begin with this outcome, and the process may be killed before the next decision.
        """
        clock = self.look_at_clock()
        if was_set(self.state, clock.boot_id, clock.booted_us) and not isinstance(facts[0], ClockSet):
            return (await self._append((clock, *facts), posts, head=False))[1:]
        return await self._append(facts, posts, head=False)

    async def post(self, key: str, fact: Fact) -> None:
        """Post a fact to this session, once per key (S3), and fold it."""
        await self.doors.log.post(self.post_to(self.state.session_id, key, fact))
        await self.refresh()

    def post_to(self, session_id: str, key: str, fact: Fact, actor: str = "brain") -> Post:
        """Return a post to another session for an append of this shift."""
        event_id = new_event_id(self.doors.clock.now_us(), self.doors.entropy)
        return Post(session_id, key, Draft(event_id, actor, fact))  # type: ignore[arg-type]  # facts are of the union

    async def _append(self, facts: Sequence[Fact], posts: Sequence[Post], *, head: bool) -> list[Event]:
        async with self._lock:
            drafts = [self._draft(fact) for fact in facts]
            at = self.decided_at if head else None
            events = await self.doors.log.append(
                self.state.session_id, self.epoch, drafts, head=at, posts=posts, holder=self.lease.worker_id
            )
            if events[0].seq == self.state.seq + 1:
                self._take(events)
            else:
                await self._catch_up()
            if any(post.session_id == self.state.session_id for post in posts):
                await self._catch_up()
            if self.state.seq - self._remembered >= SNAPSHOT_EVERY:
                self._remembered = self.state.seq
                await remember(self.state, self.doors.snapshots)
            return events

    def _draft(self, fact: Fact) -> Draft:
        event_id = new_event_id(self.doors.clock.now_us(), self.doors.entropy)
        if isinstance(fact, ShiftEnded) and fact.due_us is not None:
            fact = msgspec.structs.replace(fact, **msgspec.structs.asdict(self._clock))
        return Draft(event_id, "brain", fact)  # type: ignore[arg-type]  # facts are of the union

    async def refresh(self) -> None:
        """Fold events that others have appended."""
        async with self._lock:
            await self._catch_up()

    async def _catch_up(self) -> None:
        state = self.state
        events = await self.doors.log.read(state.session_id, after=state.seq, prev=state.hash)
        # The tasks of a fenced brain that have not ended yet go on with the state of its own shift.
        self._take([event for event in events if event.epoch <= self.epoch])
        current = events[-1].epoch if events else self.epoch
        if current > self.epoch:  # a takeover stops a fenced brain here, before its next append
            raise Fenced(
                f"session {state.session_id} is at epoch {current} and this brain holds {self.epoch}: another one took "
                "it over",
                mine=self.epoch,
                current=current,
            )

    def _take(self, events: list[Event]) -> None:
        self.state = fold(self.state, events)
        self._bodies.update(shown(events))
        self.doors.observer.on_events(events)

    async def bodies(self) -> dict[int, Fact]:
        """Return the bodies that the context of the next request shows; forget the others."""
        wanted = needed(self.state)
        missing = [seq for seq in wanted if seq not in self._bodies]
        if missing:
            first, last = min(missing), max(missing)
            events = await self.doors.log.read(self.state.session_id, after=first - 1, limit=last - first + 1)
            self._bodies.update(shown(events))
        keep = set(wanted)
        self._bodies = {seq: fact for seq, fact in self._bodies.items() if seq in keep}
        return self._bodies

    async def body(self, seq: int) -> Fact:
        """Return the body at a position."""
        if seq not in self._bodies:
            (event,) = await self.doors.log.read(self.state.session_id, after=seq - 1, limit=1)
            self._bodies[seq] = event.fact
        return self._bodies[seq]

    async def latest_words(self) -> str:
        """Return the model's text beside the calls of its latest response."""
        last = self.state.window[-1] if self.state.window else None
        parts = last.parts if isinstance(last, ResponseItem) else []
        facts = [await self.body(seq) for seq in parts]
        return "\n".join(text_of(fact.content) for fact in facts if isinstance(fact, AgentMessage))

    async def until_stopped(self) -> None:
        """Return once a user has interrupted, cancelled, or stopped everything (S14). Folds posted events."""
        while not self.state.stopping:
            await self.doors.log.wait(self.state.session_id, self.state.seq)
            await self.refresh()


Answer = Callable[[Shift, Call, dict[str, Any]], Awaitable[None]]


class Report(msgspec.Struct, frozen=True):
    """Report of a session to its parent beside its last message: the work it submitted, and its commit."""

    submitted: dict[str, Any] = {}
    commit: str = ""
    tree: str = ""


class Acts:
    """Acts of one session in one shift. The defaults are those of a plain agent.

    `answers` maps the kind's tools that the harness itself answers, by name.
    """

    answers: Mapping[str, Answer] = {}

    def __init__(self, shift: Shift) -> None:
        self.shift = shift

    async def next(self) -> Action | None:
        """Return the next action; None if it is already done, or was started in the background."""
        return decide(self.shift.state, self.shift.doors.clock.now_us())

    def prompt(self) -> str:
        """Return the system prompt."""
        return self.shift.doors.prompt

    async def guarded(self) -> tuple[str, ...]:
        """Return the workspace files that hands show read-only."""
        return ()

    async def before_call(self, hands: Hands, use: AgentToolUse) -> bool:
        """Return True if a dispatched call may start; otherwise record its end. Raises `HandsLost`."""
        return True

    async def after_call(self, hands: Hands, use: AgentToolUse, result: ExecResult) -> tuple[Fact, ...]:
        """Return the facts to record beside the result of a call."""
        return ()

    async def verify(self) -> None:
        """Carry out `Verify`, which only kinds with checks decide on: append what the checks found."""
        raise NotImplementedError(f"a {self.shift.state.tenant.kind.name} has no checks")

    async def before_end(self, ended: ShiftEnded) -> bool:
        """Finish the work that precedes the end of a shift. True if something was appended: decide again."""
        return False

    def given_up(self, park: ShiftEnded) -> ShiftEnded:
        """Return the end of a session whose wakes fail repeatedly: it parks until a user wakes it."""
        return park

    async def report(self) -> Report:
        """Return the session's report to its parent when it parks or ends."""
        return Report()


ACTS = Acts
"""The acts of a plain agent."""
