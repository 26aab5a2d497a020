"""The verbs of a log in an SQL database, over its reading and its writing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import anyio

from holdfast.clock import Clock
from holdfast.errors import HeadMoved, LogUnavailable, StorageFull
from holdfast.facts.base import Fact
from holdfast.facts.codec import Draft, Event
from holdfast.ids import Entropy, new_event_id
from holdfast.log.base import EVERY, Lease, Post, PostReceipt, Snapshot, View, Which, WorkerRow
from holdfast.log.removal import read_gone
from holdfast.log.sql.read import Reader
from holdfast.log.sql.tables import held_rows
from holdfast.log.sql.threads import ANYTHING, Watch
from holdfast.log.transaction import Transaction, fenced, ready
from holdfast.log.verify import Beside, Look
from holdfast.log.worker_locks import is_live
from holdfast.session.home import HOME, Stop
from holdfast.session.limits import admitted
from holdfast.session.money import AccountRow
from holdfast.session.rows import ItemRow, RowStatus, SessionRow, Uptime

T = TypeVar("T")
R = TypeVar("R", bound=Reader)


class Begin(Protocol):
    """Begins a session that is due; a `free` one can begin in any home."""

    def __call__(self, session_id: str, *, free: bool) -> object:
        """Begin it, soon."""
        ...


class _View:
    """A reader in a transaction, and the leases of live processes."""

    def __init__(self, reader: Reader, holders: Callable[[], dict[str, str]]) -> None:
        self.at, self.sessions, self.items, self.holders = reader.at, reader.sessions, reader.items, holders


class SqlStore(ABC, Generic[R]):
    """Implements Log, Snapshots, Leases, Index, and Removals (`holdfast.log.base`).

    `workers` is the folder of the workers' lock files; ids of events that the store makes come from `clock` and
    `entropy`.
    """

    place_id: str = ""
    """Id of this home, where several can share the log."""

    free: frozenset[str] = frozenset()
    """Those of the sessions that `due` returned last that no home has begun yet, where several can share the log."""

    def __init__(self, workers: Path, clock: Clock, entropy: Entropy, watch: Watch) -> None:
        self._workers = workers
        self._clock = clock
        self._entropy = entropy
        self._watch = watch
        self._unreleased: list[Lease] = []
        self._held: dict[str, str] = {}
        """The sessions that this process holds, with their workers."""
        self._mine: set[str] = set()

    @abstractmethod
    async def close(self) -> None:
        """Close the database. Safe to repeat."""
        ...

    @abstractmethod
    async def save(self, snapshot: Snapshot) -> None:
        """See `Snapshots.save`."""
        ...

    @abstractmethod
    async def sweep(self) -> int:
        """Delete the bodies that no event names any more; returns their number."""
        ...

    @abstractmethod
    async def look(self, work: Callable[[Look], T]) -> T:
        """Run `work` on a separate connection, which blocks no other verb."""
        ...

    @abstractmethod
    async def _read(self, work: Callable[[R], T]) -> T:
        """Run `work` on a connection that cannot write. It may run again if the database fails."""
        ...

    @abstractmethod
    async def _write(
        self, work: Callable[[Transaction], T], sessions: Collection[str], facts: Collection[Fact] = ()
    ) -> T:
        """Run `work` in a transaction, write its changes, and commit. It may run again if the database fails.

        It writes to no other `sessions`, and opens none but by `facts`.
        """
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.close()

    async def append(
        self,
        session_id: str,
        epoch: int,
        drafts: Sequence[Draft],
        *,
        head: int | None = None,
        posts: Sequence[Post] = (),
        holder: str = "",
    ) -> list[Event]:
        made = [ready(draft) for draft in drafts]
        sessions = {session_id, *(post.session_id for post in posts)}
        facts = [*(draft.fact for draft in drafts), *(post.draft.fact for post in posts)]
        return await self._write(lambda now: now.append(session_id, epoch, made, head, posts, holder), sessions, facts)

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        return await self._write(lambda now: now.post(post, create=create), {post.session_id}, (post.draft.fact,))

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        return await self._read(lambda reader: reader.events(session_id, after, prev, limit))

    async def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        return await self._read(lambda reader: reader.at(places))

    async def wait(self, session_id: str, after: int) -> int:
        while True:
            with self._watch.waiting(session_id, after) as waiter:
                head = await self._read(lambda reader: reader.head(session_id))
                if head > after:
                    return head
                await waiter.event.wait()

    async def changed(self, after: int) -> int:
        while True:
            with self._watch.waiting(ANYTHING, after) as waiter:
                await self._read(lambda reader: reader.works())
                token = self._watch.token
                if token > after:
                    return token
                await waiter.event.wait()

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        return await self._read(lambda reader: reader.snapshot(session_id, fold_digest))

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        stolen_id = new_event_id(self._clock.now_us(), self._entropy)
        work = partial(
            Transaction.acquire,
            session_id=session_id,
            draft=draft,
            stolen_id=stolen_id,
            steal=steal,
            live=self._live,
            orphaned_by=partial(self._is_orphan, session_id),
            head=head,
        )
        lease = await self._write(work, {session_id}, (draft.fact,))
        self._held[session_id] = lease.worker_id
        self._mine.add(lease.worker_id)
        return lease

    def _is_orphan(self, session_id: str, worker_id: str) -> bool:
        """Return True if the log says that a worker of this process holds a session, which it does not.

        A database that lost commits may have lost the end of a shift.
        """
        return worker_id in self._mine and session_id not in self._held

    async def renew(self, lease: Lease) -> None:
        row = await self._read(lambda reader: reader.row(lease.session_id))
        if row.epoch != lease.epoch or row.holder != lease.worker_id:
            raise fenced(row, lease.epoch)

    async def release(self, lease: Lease) -> None:
        """Release a lease. If the release cannot be written now, a later `due` writes it."""
        ended_id = new_event_id(self._clock.now_us(), self._entropy)
        try:
            await self._write(lambda now: now.release(lease, ended_id), {lease.session_id})
        except (StorageFull, LogUnavailable):
            self._unreleased.append(lease)
            raise
        if self._held.get(lease.session_id) == lease.worker_id:
            del self._held[lease.session_id]

    async def confirm(self, lease: Lease) -> None:
        """See `Leases.confirm`. While this process lives, its leases can only be stolen."""

    def listen(self, begin: Begin) -> None:
        """Call `begin` with each session that another process rings for. Here they see each other's appends."""

    async def enroll(self, worker_id: str, limit: int) -> None:
        """Tell other processes that this worker runs up to `limit` sessions at a time. Here they see its lock."""

    async def fleet(self) -> list[WorkerRow]:
        """Return the workers of all homes that share the log; empty where only one home can."""
        return []

    async def other_settings(self) -> dict[str, list[str]]:
        """Return the names of the settings that differ, by home, for the other homes that have sessions."""
        return {}

    async def is_elsewhere(self, session_id: str) -> bool:
        """Return True for a session that only another home can run now: its sandbox and its workspace are there."""
        return False

    async def is_served(self, session_id: str = "") -> bool:
        """Return True if a worker elsewhere, or here, runs that session when it is due; without one, any session."""
        return False

    async def holders(self) -> dict[str, str]:
        return await self._read(self._holders)

    def _holders(self, reader: R) -> dict[str, str]:
        held = reader.held()
        live = self._living((each.holder for each in held), reader)
        return {each.session_id: each.holder for each in held if each.holder in live}

    async def view(self, work: Callable[[View], T]) -> T:
        def job(reader: R) -> T:
            return reader.look(lambda _: work(_View(reader, partial(self._holders, reader))))

        return await self._read(job)

    async def find(self, name: str) -> SessionRow:
        return await self._read(lambda reader: reader.find(name))

    async def sessions(
        self, which: Which = EVERY, *, home: bool = False, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        return await self._read(lambda reader: reader.sessions(which, home=home, before=before, limit=limit))

    async def count(self, which: Which = EVERY) -> int:
        return await self._read(lambda reader: reader.count(which))

    async def counts(self) -> dict[RowStatus, int]:
        return await self._read(lambda reader: reader.counts())

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        """Return due sessions, without those that a live process holds."""
        while self._unreleased:  # else this process would hold them without running them
            try:
                await self.release(self._unreleased.pop())
            except (StorageFull, LogUnavailable):
                break

        def look(reader: R) -> list[str]:
            due = reader.due(now_us, up)
            live = self._living((holder for _, holder, *_ in due), reader)
            free = [each for each in due if each[1] not in live or self._is_orphan(each[0], each[1])]
            away = self.away([name for name, *_ in free], reader)
            free = [each for each in free if each[0] not in away]
            limits = reader.limits()
            if all(limit.running is None for limit in limits.values()):
                return [name for name, *_ in free]
            held = reader.held()
            live = self._living((each.holder for each in held), reader)
            running = [each.covers for each in held if each.holder in live]
            return admitted(limits, ((each.covers, each.session_id) for each in held_rows(free)), running)

        return await self._read(look)

    def away(self, due: list[str], reader: R) -> Collection[str]:
        """Return those of the due sessions that this home cannot run. Called by a reader."""
        return ()

    async def accounts(self) -> list[AccountRow]:
        return await self._read(lambda reader: reader.accounts())

    async def next_due(self, now_us: int, up: Uptime | None = None) -> int | None:
        return await self._read(lambda reader: reader.due_later(now_us, up))

    async def account(self, account_id: str) -> AccountRow | None:
        return await self._read(lambda reader: reader.account(account_id))

    async def items(self, *, open_only: bool = True, limit: int | None = None) -> list[ItemRow]:
        return await self._read(lambda reader: reader.items(open_only, limit))

    async def item(self, name: str) -> ItemRow:
        return await self._read(lambda reader: reader.item(name))

    async def stopped(self) -> Stop | None:
        return await self._read(lambda reader: reader.stopped())

    async def remove(self, rows: Sequence[SessionRow], actor: str) -> None:
        event_id = new_event_id(self._clock.now_us(), self._entropy)
        for tries_left in (2, 1, 0):
            gone = await self.look(lambda look: read_gone(look, rows))
            try:
                work = partial(Transaction.remove, gone=gone, event_id=event_id, actor=actor, live=self._live)
                return await self._write(work, {HOME, *(row.session_id for row in rows)})
            except HeadMoved:  # perhaps only the home's own log
                if not tries_left:
                    raise

    async def while_quiet(self, row: SessionRow, work: Callable[[], object]) -> bool:
        def job(now: Transaction) -> bool:
            quiet = now.is_quiet(row, self._live)
            if quiet:
                work()
            return quiet

        return await self._write(job, {row.session_id})

    async def beside(self) -> Beside:
        """Return the rows beside the events."""
        return await self._read(lambda reader: reader.beside())

    def _living(self, workers: Iterable[str], reader: R | None = None) -> set[str]:
        """Return those of the workers that live. Called by a reader, or in a transaction."""
        return {worker for worker in set(workers) if worker and is_live(self._workers, worker)}

    def _live(self, worker_id: str) -> bool:
        return bool(self._living((worker_id,)))
