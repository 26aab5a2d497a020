"""The log in one SQLite file, one transaction per append (S4)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import anyio.lowlevel
import anyio.to_thread

from holdfast.clock import Clock
from holdfast.facts.base import Fact
from holdfast.ids import Entropy, system_entropy
from holdfast.log.base import Snapshot
from holdfast.log.sql.store import SqlStore
from holdfast.log.sql.threads import ConnectionThread, Watch
from holdfast.log.sqlite.append import Writer
from holdfast.log.sqlite.connect import PATIENCE_S, Outage, connect, sentences
from holdfast.log.sqlite.migrate import open_file
from holdfast.log.sqlite.read import FileProbe, SqliteReader
from holdfast.log.transaction import Transaction
from holdfast.log.verify import Look

T = TypeVar("T")

POLL_S = 0.02
"""Seconds between two reads of the shared memory that shows commits of other processes."""


class SqliteStore(SqlStore[SqliteReader]):
    """A log in one file. Create it with `open`.

    One thread writes and one reads, so a long read delays no append; a third watches for appends of other
    processes while a task waits.
    """

    def __init__(
        self, path: Path, workers: Path, clock: Clock, entropy: Entropy, busy_timeout_s: float, patience_s: float
    ) -> None:
        self._path = path
        self._to_read = partial(connect, path, busy_timeout_s, read_only=True)
        super().__init__(workers, clock, entropy, Watch(lambda: FileProbe(self._to_read()), POLL_S))
        self._writing = ConnectionThread("holdfast-log-write", partial(connect, path, busy_timeout_s))
        self._reading = ConnectionThread("holdfast-log-read", self._to_read)
        self._outages = (Outage(path, patience_s), Outage(path, patience_s))
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

    async def save(self, snapshot: Snapshot) -> None:
        await self._writing.run(lambda: self._writer.save(snapshot))

    async def sweep(self) -> int:
        """Delete the bodies that no event names any more; returns their number."""
        return await self._writing.run(self._writer.sweep)

    async def look(self, work: Callable[[Look], T]) -> T:
        """Run `work` on a separate connection, which blocks no other verb."""
        thread = ConnectionThread("holdfast-log-look", self._to_read)
        try:
            return await self._read_in(thread, lambda reader: reader.look(work))
        finally:
            await thread.close()

    async def check_file(self) -> list[str]:
        """Return the problems found by SQLite's integrity check."""
        return await self._read_in(self._reading, lambda reader: reader.check_file())

    async def _read(self, work: Callable[[SqliteReader], T]) -> T:
        return await self._read_in(self._reading, work)

    async def _read_in(self, thread: ConnectionThread[sqlite3.Connection], work: Callable[[SqliteReader], T]) -> T:
        def job() -> T:
            with sentences(self._path):
                return work(SqliteReader(thread.connection(), self._path))

        for outage in self._outages:
            outage.check()
        return await thread.run(lambda: self._outages[1].through(job, thread.drop))

    async def _write(
        self, work: Callable[[Transaction], T], sessions: Collection[str], facts: Collection[Fact] = ()
    ) -> T:
        self._writing.check_open()
        self._outages[1].check()
        await anyio.lowlevel.checkpoint_if_cancelled()  # from here on the work is done even if the caller is cancelled
        ask = self._writer.ask(work)
        await self._writing.run_now(lambda: self._writer.settle(ask))
        for session_id, head in ask.moved:
            self._watch.moved(session_id, head)
        return ask.result()
