"""The SQLite store: every interface of the log over one file, one transaction per append (S4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio.lowlevel
import anyio.to_thread

from holdfast.clock import Clock
from holdfast.errors import HeadMoved, LogUnavailable, StorageFull
from holdfast.facts.codec import Draft, Event
from holdfast.ids import Entropy, new_event_id, system_entropy
from holdfast.log.base import EVERY, Lease, Post, PostReceipt, Snapshot, Which
from holdfast.log.removal import read_gone
from holdfast.log.sqlite.append import Writer
from holdfast.log.sqlite.connect import PATIENCE_S, Outage, connect, sentences
from holdfast.log.sqlite.migrate import open_file
from holdfast.log.sqlite.read import Reader
from holdfast.log.sqlite.threads import ANYTHING, ConnectionThread, Watch
from holdfast.log.transaction import Transaction, fenced, ready
from holdfast.log.verify import Beside, Look
from holdfast.log.worker_locks import is_live
from holdfast.session.home import Stop
from holdfast.session.money import AccountRow
from holdfast.session.rows import ItemRow, RowStatus, SessionRow, Uptime

T = TypeVar("T")


class SqliteStore:
    """Implements Log, Snapshots, Leases, and Index (`holdfast.log.base`). Create it with `open`.

    One thread writes and one reads, so a long read delays no append; a third watches for appends of other
    processes while a task waits.
    """

    def __init__(
        self, path: Path, workers: Path, clock: Clock, entropy: Entropy, busy_timeout_s: float, patience_s: float
    ) -> None:
        self._path = path
        self._workers = workers
        self._clock = clock
        self._entropy = entropy
        self._to_read = partial(connect, path, busy_timeout_s, read_only=True)
        self._writing = ConnectionThread("holdfast-log-write", partial(connect, path, busy_timeout_s))
        self._reading = ConnectionThread("holdfast-log-read", self._to_read)
        self._watch = Watch(self._to_read)
        self._outages = (Outage(path, patience_s), Outage(path, patience_s))
        self._unreleased: list[Lease] = []
        self._writer = Writer(path, self._writing, clock, self._outages[0])

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        workers: Path,
        clock: Clock,
        entropy: Entropy = system_entropy,
        busy_timeout_s: float = 30.0,
        patience_s: float = PATIENCE_S,
        accept_loss: bool = False,
    ) -> Self:
        """Open or create the file. `workers` is the folder of the workers' lock files.

        A failing disk is retried for `patience_s`. `accept_loss` opens a file that lacks acknowledged events.
        Raises `LogUnavailable`, `LogDamaged` (`SchemaTooNew` for tables of a newer version, `EventsLost`),
        `StorageFull`; then nothing was written.
        """
        await anyio.to_thread.run_sync(partial(open_file, path, busy_timeout_s, accept_loss=accept_loss))
        return cls(path, workers, clock, entropy, busy_timeout_s, patience_s)

    async def close(self) -> None:
        """End the threads and close the file. Safe to repeat."""
        await anyio.to_thread.run_sync(self._watch.close)
        await self._reading.close()
        await self._writing.close()
        self._writer.close()

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
    ) -> list[Event]:
        made = [ready(draft) for draft in drafts]
        return await self._write(lambda now: now.append(session_id, epoch, made, head, posts))

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        return await self._write(lambda now: now.post(post, create=create))

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        return await self._read(lambda reader: reader.events(session_id, after, prev, limit))

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

    async def save(self, snapshot: Snapshot) -> None:
        await self._writing.run(lambda: self._writer.save(snapshot))

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        return await self._read(lambda reader: reader.snapshot(session_id, fold_digest))

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        stolen_id = new_event_id(self._clock.now_us(), self._entropy)

        def work(now: Transaction) -> Lease:
            self._writer.check_vocabulary(session_id)
            return now.acquire(session_id, draft, stolen_id, steal=steal, live=self._live, head=head)

        return await self._write(work)

    async def renew(self, lease: Lease) -> None:
        row = await self._read(lambda reader: reader.row(lease.session_id))
        if row.epoch != lease.epoch or row.holder != lease.worker_id:
            raise fenced(row, lease.epoch)

    async def release(self, lease: Lease) -> None:
        """Release a lease. If the release cannot be written now, a later `due` writes it."""
        ended_id = new_event_id(self._clock.now_us(), self._entropy)
        try:
            await self._write(lambda now: now.release(lease, ended_id))
        except (StorageFull, LogUnavailable):
            self._unreleased.append(lease)
            raise

    async def holders(self) -> dict[str, str]:
        held = await self._read(lambda reader: reader.held())
        live = {worker for worker in set(held.values()) if self._live(worker)}
        return {session_id: worker for session_id, worker in held.items() if worker in live}

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
        due = await self._read(lambda reader: reader.due(now_us, up))
        live = {worker for worker in {holder for _, holder in due} if worker and self._live(worker)}
        return [session_id for session_id, holder in due if holder not in live]

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
                return await self._write(work)
            except HeadMoved:  # perhaps only the home's own log
                if not tries_left:
                    raise

    async def while_quiet(self, row: SessionRow, work: Callable[[], object]) -> bool:
        def job(now: Transaction) -> bool:
            quiet = now.is_quiet(row, self._live)
            if quiet:
                work()
            return quiet

        return await self._write(job)

    async def sweep(self) -> int:
        """Delete the bodies that no event names any more; returns their number."""
        return await self._writing.run(self._writer.sweep)

    async def look(self, work: Callable[[Look], T]) -> T:
        """Run `work` on a separate connection, which blocks no other verb."""
        thread = ConnectionThread("holdfast-log-look", self._to_read)
        try:
            return await self._read(lambda reader: reader.look(work), thread)
        finally:
            await thread.close()

    async def beside(self) -> Beside:
        """Return the rows beside the events."""
        return await self._read(lambda reader: reader.beside())

    async def check_file(self) -> list[str]:
        """Return the problems found by SQLite's integrity check."""
        return await self._read(lambda reader: reader.check_file())

    def _live(self, worker_id: str) -> bool:
        return is_live(self._workers, worker_id)

    async def _read(self, work: Callable[[Reader], T], thread: ConnectionThread | None = None) -> T:
        reading = thread or self._reading

        def job() -> T:
            with sentences(self._path):
                return work(Reader(reading.connection(), self._path))

        for outage in self._outages:
            outage.check()
        return await reading.run(lambda: self._outages[1].through(job, reading.drop))

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        self._writing.check_open()
        self._outages[1].check()
        await anyio.lowlevel.checkpoint_if_cancelled()  # from here on the work is done even if the caller is cancelled
        ask = self._writer.ask(work)
        await self._writing.run_now(lambda: self._writer.settle(ask))
        for session_id, head in ask.moved:
            self._watch.moved(session_id, head)
        return ask.result()
