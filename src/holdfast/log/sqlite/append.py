"""The writing thread: an append is one transaction with one sync, acknowledged only after the commit."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from holdfast.clock import Clock
from holdfast.errors import DiskError, HoldfastError, LogFailed, LogUnavailable, StorageFull
from holdfast.log.base import Snapshot
from holdfast.log.sql.tables import SqlView, snapshot_values, write
from holdfast.log.sql.threads import ConnectionThread
from holdfast.log.sqlite.connect import PATIENCE_S, SQL, Outage, SqliteDatabase, code_of, sentences, translated
from holdfast.log.sqlite.watermark import Watermark
from holdfast.log.transaction import Sealed, Transaction
from holdfast.session.rows import SessionRow

T = TypeVar("T")

_KNOWN_MAX = 1_000
"""Number of session rows that a writer caches."""

_TOGETHER_MAX = 64
"""Largest number of transactions in one commit."""


class Ask(Generic[T]):
    """A queued transaction: its work, then its result or its error.

    `moved` lists the sessions whose heads it moved, with their new heads.
    """

    __slots__ = ("_result", "answered", "error", "moved", "work")

    def __init__(self, work: Callable[[Transaction], T]) -> None:
        self.work = work
        self.answered = False
        self.error: Exception | None = None
        self.moved: list[tuple[str, int]] = []
        self._result: T | None = None

    def answer(self, result: T, rows: dict[str, SessionRow]) -> None:
        """Record the result of a committed transaction."""
        self._result = result
        self.moved = [(session_id, row.head) for session_id, row in rows.items()]
        self.answered = True

    def refuse(self, error: Exception) -> None:
        """Record the error: nothing was written, or the outcome is unknown."""
        self.error = error
        self.answered = True

    def result(self) -> T:
        """Return the work's result. Raises the error of the work or of the commit."""
        if self.error is not None:
            raise self.error
        return cast(T, self._result)


class Writer:
    """Runs transactions on the writing thread's connection.

    Transactions that wait while another one syncs are committed together; a refused one writes nothing and does not
    affect the others. After a disk error in a commit, the writer looks the commit up on a new connection: it
    acknowledges a durable commit and repeats an absent one. While neither is known, it waits up to the outage's
    patience; after that, this process writes nothing more.
    """

    def __init__(
        self, path: Path, thread: ConnectionThread[sqlite3.Connection], clock: Clock, outage: Outage | None = None
    ) -> None:
        self._path = path
        self._thread = thread
        self._clock = clock
        self._waiting: deque[Ask[Any]] = deque()
        self._outage = outage or Outage(path, PATIENCE_S)
        self._watermark = Watermark(path)
        self._version = -1
        self._known: dict[str, SessionRow] = {}

    def ask(self, work: Callable[[Transaction], T]) -> Ask[T]:
        """Queue a transaction, from any thread; `settle` it in the writing thread."""
        ask = Ask(work)
        self._waiting.append(ask)
        return ask

    def settle(self, ask: Ask[T]) -> None:
        """Answer an ask and all others that wait; in the writing thread only."""
        if len(self._waiting) == 1 and not ask.answered:
            self._alone(self._waiting.popleft())
        while not ask.answered:
            asks = [self._waiting.popleft() for _ in range(min(len(self._waiting), _TOGETHER_MAX))]
            if len(asks) > 1 and self._together(asks):
                continue
            for each in asks:
                self._alone(each)

    def close(self) -> None:
        """Close the watermark; the thread closes the connection."""
        self._watermark.close()

    def _alone(self, ask: Ask[Any]) -> None:
        try:
            ask.answer(*self._outage.through(lambda: self._once(ask), self._reopen))
        except Exception as error:
            ask.refuse(error)

    def _once(self, ask: Ask[T]) -> tuple[T, dict[str, SessionRow]]:
        """Run one transaction. Raises `DiskError` only if nothing was written."""
        with sentences(self._path):
            connection = self._begin()
            transaction = self._transaction(connection)
            try:
                result = ask.work(transaction)
                write(SqliteDatabase(connection), transaction)
            except BaseException:
                self._roll_back(connection)
                raise
            self._learn(transaction)
            self._end(connection, transaction.sealed)
        return result, transaction.rows

    def _together(self, asks: list[Ask[Any]]) -> bool:
        """Run all in one commit. Return False if that failed; then nothing was written, and each is tried alone."""
        sealed: list[Sealed] = []
        done: list[tuple[Ask[Any], object, dict[str, SessionRow]]] = []
        refused: list[tuple[Ask[Any], Exception]] = []
        try:
            with sentences(self._path):
                connection = self._begin()
        except Exception:
            return False
        try:
            for ask in asks:
                transaction = self._transaction(connection)
                try:
                    result = ask.work(transaction)
                except HoldfastError as error:  # it has written nothing yet
                    refused.append((ask, error))
                    continue
                write(SqliteDatabase(connection), transaction)
                done.append((ask, result, transaction.rows))
                sealed += transaction.sealed
                self._learn(transaction)
        except Exception:
            self._roll_back(connection)
            return False
        try:
            with sentences(self._path):
                self._end(connection, sealed)
        except DiskError:
            return False
        except Exception as trouble:
            refused += [(ask, trouble) for ask, _, _ in done]
            done = []
        for ask, result, moved in done:
            ask.answer(result, moved)
        for ask, reason in refused:
            ask.refuse(reason)
        return True

    def _begin(self) -> sqlite3.Connection:
        """Begin a transaction; drop cached rows that another connection may have changed."""
        self._outage.check()
        connection = self._thread.connection()
        connection.execute("begin immediate")
        (version,) = connection.execute("pragma data_version").fetchone()
        if version != self._version or len(self._known) > _KNOWN_MAX:
            self._known = {}
            self._version = version
        return connection

    def _learn(self, done: Transaction) -> None:
        self._known.update(done.rows)
        for session_id in done.removed:
            self._known.pop(session_id, None)

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        return Transaction(SqlView(SqliteDatabase(connection), self._known), self._clock.now_us())

    def _end(self, connection: sqlite3.Connection, sealed: list[Sealed]) -> None:
        if sealed:
            self._commit(connection, sealed[-1])
        else:
            self._roll_back(connection)

    def sweep(self) -> int:
        """Delete the blobs that no event names; returns their number."""

        def sweep() -> int:
            with sentences(self._path):
                return self._thread.connection().execute(SQL["sweep_blobs"]).rowcount

        return self._outage.through(sweep, self._reopen)

    def save(self, snapshot: Snapshot) -> None:
        """Save a snapshot in place of the session's earlier one."""
        values = snapshot_values(snapshot)

        def save() -> None:
            with sentences(self._path):
                self._thread.connection().execute(SQL["save_snapshot"], values)

        self._outage.through(save, self._reopen)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._known.clear()
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            self._reopen()

    def _reopen(self) -> None:
        self._version = -1
        self._thread.drop()

    def _commit(self, connection: sqlite3.Connection, last: Sealed) -> None:
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            self._roll_back(connection)
            trouble = translated(error, self._path)
            if isinstance(trouble, StorageFull) and code_of(error) == sqlite3.SQLITE_FULL:
                raise trouble from error
            if not self._kept_after_all(last):
                raise trouble from error
        self._outage.over()
        self._watermark.write(last.event)

    def _kept_after_all(self, last: Sealed) -> bool:
        """Return True if a commit of unknown outcome is durable. Raises `LogFailed` if it stays unknown.

        The event is read back by its chain hash, which covers the draft's id. After a failed sync that is not
        enough, so a checkpoint copies it into the database and syncs that.
        """
        values = {"session_id": last.event.session_id, "seq": last.event.seq}
        while True:
            try:
                self._reopen()
                connection = self._thread.connection()
                found = connection.execute(SQL["event_hash"], values).fetchone()
                if found is None or found[0] != last.event.hash:
                    return False
                busy, frames, copied = connection.execute("pragma wal_checkpoint(full)").fetchone()
                if not busy and frames == copied:
                    return True
                self._outage.rest(DiskError("another process keeps the write-ahead log from being copied"))
            except LogFailed:
                raise
            except (sqlite3.Error, LogUnavailable) as error:
                self._outage.rest(error)
