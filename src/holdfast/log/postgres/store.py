"""The log in PostgreSQL: many processes, one transaction per append (S4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import psycopg

from holdfast.clock import Clock
from holdfast.facts.base import Fact
from holdfast.facts.codec import Draft, Event
from holdfast.facts.shift import ShiftStarted
from holdfast.ids import Entropy, system_entropy
from holdfast.log.base import Lease, Post, Snapshot, WorkerRow
from holdfast.log.postgres.append import Writer
from holdfast.log.postgres.beats import TTL_S, Beats
from holdfast.log.postgres.bell import Bell
from holdfast.log.postgres.connect import FOLDER, Connection, PostgresDatabase, connect, is_lost, place_of, translated
from holdfast.log.postgres.migrate import check
from holdfast.log.postgres.patience import PATIENCE_S, Patience
from holdfast.log.postgres.places import Place
from holdfast.log.postgres.read import PostgresReader, TableProbe
from holdfast.log.sql.store import Begin, SqlStore
from holdfast.log.sql.threads import ConnectionThread, Watch, hand_over, soon_here
from holdfast.log.transaction import Transaction
from holdfast.log.verify import Look
from holdfast.log.worker_locks import is_live
from holdfast.session.rows import is_due

T = TypeVar("T")

POLL_S = 0.1
"""Seconds between two queries for appends of other processes."""

_WRITERS = 8
_READERS = 2


class PostgresStore(SqlStore[PostgresReader]):
    """A log in PostgreSQL. Create it with `open`.

    Several threads write, since appends to different sessions wait for no other; the database commits them together.
    """

    def __init__(
        self,
        address: str,
        workers: Path,
        clock: Clock,
        entropy: Entropy,
        folder: str,
        patience_s: float,
        place: Place,
        ttl_s: float,
    ) -> None:
        self._connect = partial(connect, address, folder)
        self._at, self.place_id = place, place.place_id
        self._sure: dict[str, int] = {}
        """The number of lapses before which each session's lease was last known to be valid."""
        self._begin: Callable[[str, bool], None] | None = None
        self._beats = Beats(self._connect, place, ttl_s)
        super().__init__(workers, clock, entropy, Watch(lambda: TableProbe(self._connect()), POLL_S, self._heard))
        self._bell = Bell(self._connect)
        self._writing = ConnectionThread("holdfast-log-write", self._connect, _WRITERS)
        self._reading = ConnectionThread("holdfast-log-read", self._connect, _READERS)
        self._shown, self._patience_s = place_of(address), patience_s
        self._patience = partial(Patience, self._shown, patience_s=patience_s)
        self._writes, self._reads = self._patience(threads=self._writing), self._patience(threads=self._reading)
        self._writer = Writer(self._writing, self._writes, place, self._beats.is_wary)

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        workers: Path,
        clock: Clock,
        entropy: Entropy = system_entropy,
        folder: str = FOLDER,
        patience_s: float = PATIENCE_S,
        ttl_s: float = TTL_S,
        keeps: bool = False,
        program: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Open the log at an address that libpq understands. `workers` is the folder of the workers' lock files.

        The tables must exist: `holdfast migrate` makes them. A database that goes away is retried for `patience_s`, and
        a worker that is silent for `ttl_s` counts as dead. `keeps`, `program`, and `settings` are those of its place.
        Raises `LogUnavailable` or `SchemaTooNew`; then nothing was written.
        """

        def look() -> Place:
            place = Place.of(workers, entropy, keeps=keeps, program=program, settings=settings)
            check(address, place, folder)
            return place

        place = await anyio.to_thread.run_sync(look)
        return cls(address, workers, clock, entropy, folder, patience_s, place, ttl_s)

    async def close(self) -> None:
        """End the threads and close their connections. Safe to repeat."""
        self._writes.close()
        self._reads.close()
        if await anyio.to_thread.run_sync(self._beats.close):
            self._bell.ring()  # what these workers held is free for others
        await anyio.to_thread.run_sync(self._bell.close)
        await anyio.to_thread.run_sync(self._watch.close)
        await self._reading.close()
        await self._writing.close()

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        """Take a lease, once the worker beats. See `Leases.acquire`."""
        if isinstance(draft.fact, ShiftStarted):
            self._beats.enroll(draft.fact.worker_id, soon_here())
            await self._until_fresh()
        return await super().acquire(session_id, draft, steal=steal, head=head)

    async def is_elsewhere(self, session_id: str) -> bool:
        """Return True for a session that only another home can run now: its sandbox and its workspace are there."""
        return bool((await self._read(lambda reader: self._standing([session_id], reader)))[0])

    def away(self, due: list[str], reader: PostgresReader) -> Collection[str]:
        away, self.free = self._standing(due, reader) if due else (set[str](), frozenset[str]())
        return away

    def _standing(self, sessions: list[str], reader: PostgresReader) -> tuple[set[str], frozenset[str]]:
        """Return those of the sessions that only another home can run, and those that any home can begin."""
        return self._at.standing(reader.database, sessions, wary=self._beats.is_wary())

    def listen(self, begin: Begin) -> None:
        """Call `begin` in this event loop with each session that the bell rings for, and that this place can run."""
        soon = soon_here()
        self._begin = lambda session_id, free: hand_over(soon, lambda: begin(session_id, free=free))

    def _heard(self, rings: list[str]) -> None:
        for session_id, _, place in (ring.partition(" ") for ring in rings):
            if session_id and place in ("", self._at.place_id) and self._begin is not None:
                self._begin(session_id, not place)

    async def enroll(self, worker_id: str, limit: int) -> None:
        """Tell other processes that this worker runs up to `limit` sessions at a time, with which settings."""
        values = {"place": self._at.place_id, "settings": self._at.settings}
        await self._run("keep_settings", values)
        self._beats.enroll(worker_id, soon_here(), limit)
        await self._until_fresh()

    async def _run(self, name: str, values: Mapping[str, object]) -> None:
        """Run a statement that changes something beside the log."""
        await self._writing.run(
            lambda: self._writes.through(lambda: PostgresDatabase(self._writing.connection()).run(name, values))
        )

    async def fleet(self) -> list[WorkerRow]:
        """Return the workers of all homes that share the log."""
        return await self._read(lambda reader: reader.fleet())

    async def other_settings(self) -> dict[str, list[str]]:
        """Return the names of the settings that differ, by home, for the other homes that have sessions."""
        return await self._read(lambda reader: self._at.differences(reader.database))

    async def outage(self, model: str) -> tuple[str, int] | None:
        """See `Outages.outage` of `holdfast.model.shared` (S13)."""
        values = {"name": f"outage of {model}"}
        return await self._read(lambda reader: reader.database.run("outage", values).fetchone())

    async def tell_outage(self, model: str, says: str, wait_us: int) -> None:
        """See `Outages.tell_outage`."""
        values: dict[str, object] = {"name": f"outage of {model}"}
        values |= {"says": says, "wait_us": wait_us} if says else {}
        await self._run("tell_outage" if says else "forget_outage", values)

    async def is_served(self, session_id: str = "") -> bool:
        """Return True if a worker of any home runs that session when it is due; without one, any session."""
        return await self._read(lambda reader: reader.is_served(session_id))

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
        """See `Log.append`. An append shows that its lease was valid after it began."""
        lapses = self._beats.lapses
        events = await super().append(session_id, epoch, drafts, head=head, posts=posts, holder=holder)
        self._sure[session_id] = lapses
        return events

    async def confirm(self, lease: Lease) -> None:
        """See `Leases.confirm`. It looks at the lease only after a time without acknowledged beats.

        That may have been during the latest append: a process that was stopped takes in an old answer.
        """
        while not self._beats.is_fresh() or self._sure.get(lease.session_id) != self._beats.lapses:
            await self._until_fresh()
            lapses = self._beats.lapses
            await self.renew(lease)
            self._sure[lease.session_id] = lapses

    async def release(self, lease: Lease) -> None:
        self._sure.pop(lease.session_id, None)
        await super().release(lease)

    async def _until_fresh(self) -> None:
        """Wait until the workers of this process beat. Raises `LogUnavailable` if they cannot for long."""
        with anyio.move_on_after(self._patience_s):
            while not self._beats.is_fresh():
                self._reading.check_open()
                await anyio.to_thread.run_sync(self._beats.wait, abandon_on_cancel=True)
                trouble = self._beats.trouble
                if trouble is not None and not is_lost(trouble):
                    break
            else:
                return
        trouble = self._beats.trouble or psycopg.OperationalError("it takes no beats of this worker")
        raise translated(trouble, self._shown)

    def _living(self, workers: Iterable[str], reader: PostgresReader | None = None) -> set[str]:
        """Return those of the workers that live: their beats are young, and for this place the kernel says so too."""
        names = sorted(set(workers) - {""})
        reader = reader or PostgresReader(self._writing.connection())
        found = reader.living(names, wary=self._beats.is_wary()) if names else {}
        return {name for name, seat in found.items() if seat != self._at.seat or is_live(self._workers, name)}

    async def save(self, snapshot: Snapshot) -> None:
        await self._writing.run(lambda: self._writer.save(snapshot))

    async def sweep(self) -> int:
        """Delete the bodies that no event names any more; returns their number."""
        return await self._writing.run(self._writer.sweep)

    async def look(self, work: Callable[[Look], T]) -> T:
        """Run `work` on a separate connection, which blocks no other verb."""
        thread = ConnectionThread("holdfast-log-look", self._connect)
        try:
            return await self._read_in(thread, self._patience(threads=thread), lambda reader: reader.look(work))
        finally:
            await thread.close()

    async def _read(self, work: Callable[[PostgresReader], T]) -> T:
        return await self._read_in(self._reading, self._reads, work)

    async def _read_in(
        self, threads: ConnectionThread[Connection], patience: Patience, work: Callable[[PostgresReader], T]
    ) -> T:
        return await threads.run(lambda: patience.through(lambda: work(PostgresReader(threads.connection()))))

    async def _write(
        self, work: Callable[[Transaction], T], sessions: Collection[str], facts: Collection[Fact] = ()
    ) -> T:
        self._writing.check_open()
        await anyio.lowlevel.checkpoint_if_cancelled()  # from here on the work is done even if the caller is cancelled
        result, rows = await self._writing.run_now(lambda: self._writer.transact(work, sessions, facts))
        for session_id, row in rows.items():
            self._watch.moved(session_id, row.head)
            if not row.holder and is_due(row, row.updated_us):
                self._bell.ring(session_id)
        return result
