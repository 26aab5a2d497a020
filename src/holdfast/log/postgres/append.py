"""Writing: an append is one transaction, acknowledged only after its commit.

Locks are advisory and named by session, account, and limit: the home first, then sessions, then accounts, then limits,
each in the order of their names. They are taken before anything is written, so a transaction gets its number after all
those that it waited for, and positions (`postgres.sql`, tail) follow the order of each session. `move_session` still
names the head before, so a writer that ignores the locks loses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

import psycopg

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, LogFailed
from holdfast.facts.base import Fact
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionForked
from holdfast.facts.shift import BudgetSet, ShiftStarted
from holdfast.log.base import Snapshot
from holdfast.log.chain import BLOB_OVER
from holdfast.log.postgres.connect import Connection, PostgresDatabase, end, is_lost
from holdfast.log.postgres.patience import Patience
from holdfast.log.postgres.places import Place
from holdfast.log.sql.tables import SqlView, account_row, number, row_values, session_row, snapshot_values, write
from holdfast.log.sql.threads import ConnectionThread
from holdfast.log.transaction import Sealed, Transaction
from holdfast.session.home import HOME
from holdfast.session.money import AccountRow
from holdfast.session.rows import FIRST, SessionRow

T = TypeVar("T")

_KNOWN_MAX = 1_000
"""Number of session rows that a writer keeps in memory."""

_TOLERANCE_US = 500_000
"""Largest difference of an event's time from the database's."""


class _Unanswered(Exception, Generic[T]):
    """A commit whose acknowledgement was lost: `last` is its last event."""

    def __init__(self, last: Sealed, result: T, rows: dict[str, SessionRow]) -> None:
        super().__init__("no answer to a commit")
        self.last = last
        self.result = result
        self.rows = rows


class _View(SqlView):
    """The stored data as a transaction reads it. `rows` are those of the locked sessions that exist."""

    __slots__ = ("_accounts", "_database", "_paths", "_rows", "_vocabularies")

    def __init__(
        self, db: PostgresDatabase, rows: dict[str, SessionRow | None], vocabularies: dict[str, int], paths: set[str]
    ) -> None:
        super().__init__(db, {})
        self._database = db
        self._rows = rows
        self._vocabularies = vocabularies
        self._paths = paths
        self._accounts: dict[str, AccountRow | None] = {}

    def row(self, session_id: str) -> SessionRow | None:
        return self._rows[session_id] if session_id in self._rows else super().row(session_id)

    def vocabulary(self, session_id: str) -> int | None:
        return self._vocabularies.get(session_id)

    def account(self, account_id: str) -> AccountRow | None:
        """Return an account. The first call locks and reads all those that the transaction may move."""
        if account_id not in self._accounts:
            names = sorted({account_id, *self._paths} - self._accounts.keys())
            with self._database.pipeline():
                self._db.run("lock_accounts", {"names": names})
                found = self._db.run("locked_accounts", {"names": names})
            self._accounts |= dict.fromkeys(names)
            self._accounts |= {row.account_id: row for row in map(account_row, found)}
        return self._accounts[account_id]

    def hold(self, limits: Sequence[str]) -> None:
        self._db.run("lock_limits", {"names": [*limits]})


class _NeedsLook(Exception):
    """A transaction asked for more than the row in memory."""


class _Remembered(SqlView):
    """The row of a session as it was left, and nothing else."""

    def _one(self, name: str, values: dict[str, object]) -> Any:
        raise _NeedsLook


class Writer:
    """Runs transactions on the connections of its threads.

    Most appends add one event to a session that this process wrote to last. They are decided on the row in memory and
    sent as one statement, which changes nothing if the row is another one by now: then they are decided again. A row is
    derived from its events, so it is the same if its head and the hash of that are.
    """

    def __init__(
        self, threads: ConnectionThread[Connection], patience: Patience, place: Place, is_wary: Callable[[], bool]
    ) -> None:
        self._place = place
        self._is_wary = is_wary
        self._threads = threads
        self._patience = patience
        self._clock = SystemClock()
        self._known: dict[str, SessionRow] = {}
        self._ahead_us: int | None = None

    def transact(
        self, work: Callable[[Transaction], T], sessions: Collection[str], facts: Collection[Fact]
    ) -> tuple[T, dict[str, SessionRow]]:
        """Run a transaction to its known end; returns the result of `work`, and the rows that it moved."""
        unanswered: list[_Unanswered[T]] = []

        def attempt() -> tuple[T, dict[str, SessionRow]]:
            try:
                done = self._quickly(work, sessions) if facts and not unanswered else None
                return done or self._once(work, sessions, facts, unanswered)
            except _Unanswered as lost:
                unanswered.append(lost)
                raise psycopg.OperationalError("the connection broke at a commit") from lost
            except HoldfastError:  # decided on rows with which no lost commit can end any more
                unanswered.clear()
                raise

        try:
            return self._patience.through(attempt)
        except HoldfastError as error:
            if not unanswered:
                raise
            raise LogFailed(
                f"{self._patience.place} did not answer a commit and stayed away; all acknowledged events are kept, "
                "and this append may or may not be stored: `holdfast logs` shows it once the database is back"
            ) from error

    def save(self, snapshot: Snapshot) -> None:
        """Save a snapshot in place of the session's earlier one."""
        values = snapshot_values(snapshot)
        self._patience.through(lambda: PostgresDatabase(self._threads.connection()).run("save_snapshot", values))

    def sweep(self) -> int:
        """Delete the blobs that no event names; returns their number. Appends with a blob wait meanwhile."""

        def sweep() -> int:
            connection = self._threads.connection()
            try:
                connection.execute("begin")
                connection.execute("lock table blobs in exclusive mode")
                count = PostgresDatabase(connection).run("sweep_blobs").rowcount
                connection.execute("commit")
                return count
            finally:
                end(connection, wrote=True)

        return self._patience.through(sweep)

    def _quickly(
        self, work: Callable[[Transaction], T], sessions: Collection[str]
    ) -> tuple[T, dict[str, SessionRow]] | None:
        """Run a transaction on the row in memory. Returns None if it needs to look, or if another writer was faster."""
        row = self._known.get(next(iter(sessions))) if len(sessions) == 1 else None
        if row is None or self._ahead_us is None:
            return None
        now_us = max(round(self._clock.monotonic_s() * 1e6) + self._ahead_us, row.updated_us)
        db = PostgresDatabase(self._threads.connection())
        transaction = Transaction(_Remembered(db, {row.session_id: row}), now_us)
        try:
            result = work(transaction)
        except (_NeedsLook, HoldfastError):
            return None
        if len(transaction.sealed) != 1 or len(transaction.sealed[0].body) > BLOB_OVER:
            return None
        (last,) = transaction.sealed
        event = last.event
        values = {
            **row_values(transaction.rows[row.session_id]),
            "was": row.head,
            "was_hash": row.head_hash,
            "at_epoch": event.epoch,
            "at_us": event.at_us,
            "tolerance_us": _TOLERANCE_US,
            "type": event.type,
            "body": last.body,
        }
        try:
            ((moved, now_us),) = db.run("append_one", values)
        except psycopg.Error as error:
            if is_lost(error):
                raise _Unanswered(last, result, transaction.rows) from error
            raise
        if not moved:
            self._known.pop(row.session_id, None)
            return None
        self._learn_time(now_us)
        self._remember(transaction)
        return result, transaction.rows

    def _learn_time(self, now_us: int) -> None:
        """Keep the time that the database has."""
        self._ahead_us = now_us - round(self._clock.monotonic_s() * 1e6)

    def _remember(self, done: Transaction) -> None:
        """Keep the rows of a commit."""
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
        self._known.update(done.rows)

    def _once(
        self,
        work: Callable[[Transaction], T],
        sessions: Collection[str],
        facts: Collection[Fact],
        unanswered: list[_Unanswered[T]],
    ) -> tuple[T, dict[str, SessionRow]]:
        connection = self._threads.connection()
        db = PostgresDatabase(connection)
        done: _Unanswered[T] | None = None
        try:
            view, now_us = _begin(connection, db, sessions, facts)
            self._learn_time(now_us)
            for before in unanswered:  # its locks are free, so it has ended; a quick one has, or finds another head
                event = before.last.event
                found = db.run("event_hash", {"session_id": event.session_id, "seq": event.seq}).fetchone()
                if found is not None and found[0] == event.hash:  # it covers the draft's id
                    return before.result, before.rows
            transaction = Transaction(view, now_us)
            result = work(transaction)
            if transaction.sealed:
                self._place.write(db, transaction, wary=self._is_wary())
                done = _Unanswered(transaction.sealed[-1], result, transaction.rows)
                with db.pipeline():
                    write(db, transaction)
                    connection.execute("commit")
                self._remember(transaction)
            return result, transaction.rows
        except psycopg.Error as error:
            if done is not None and is_lost(error):
                raise done from error
            raise
        finally:
            end(connection, wrote=done is not None)


def _begin(
    connection: Connection, db: PostgresDatabase, sessions: Collection[str], facts: Iterable[Fact]
) -> tuple[_View, int]:
    """Begin a transaction: lock the sessions, then read their rows and the time of the database."""
    paths: set[str] = set()
    locked, needs_home = set(sessions), False
    for fact in facts:
        if isinstance(fact, FIRST):
            paths |= {*fact.accounts, *sessions}
            needs_home = True
        if isinstance(fact, SessionForked):
            locked.add(fact.origin)
        if isinstance(fact, BudgetSet | ApprovalDecided):
            paths.add(fact.account_id)
        needs_home = needs_home or isinstance(fact, ShiftStarted)
    names = sorted(locked, key=lambda name: (name != HOME, name))
    with db.pipeline():
        connection.execute("begin")
        if needs_home and HOME not in locked:
            db.run("share_home", {"home": HOME})
        db.run("lock_sessions", {"names": names})
        found = db.run("locked_sessions", {"names": [*names, HOME] if needs_home and HOME not in locked else names})
    rows: dict[str, SessionRow | None] = dict.fromkeys(names)
    vocabularies: dict[str, int] = {}
    stored: list[Any] = found.fetchall()
    for _, *values, vocabulary in stored:
        if values[0] is not None:
            row = session_row(tuple(values))
            rows[row.session_id], vocabularies[row.session_id] = row, number(vocabulary, row.session_id)
            paths |= set(row.accounts)
    if needs_home:
        rows.setdefault(HOME, None)
    return _View(db, rows, vocabularies, paths - {""}), int(stored[0][0])
