"""The writing thread's work: one transaction an append, one sync a transaction, no word before it is true."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, LogUnavailable, SchemaTooNew, StorageFull
from holdfast.facts.codec import SCHEMA
from holdfast.log.base import Snapshot
from holdfast.log.sqlite.connect import SQL
from holdfast.log.sqlite.tables import SqliteView, number, write
from holdfast.log.sqlite.thread import ConnectionThread
from holdfast.log.sqlite.trouble import code_of, sentences, translated
from holdfast.log.transaction import Sealed, Transaction

T = TypeVar("T")


class Writer:
    """Runs transactions on the writing thread's connection.

    After the disk failed under a commit it writes no more: only a process that opens the file anew can
    say what is there.
    """

    def __init__(self, path: Path, thread: ConnectionThread) -> None:
        self._path = path
        self._thread = thread
        self._failed: HoldfastError | None = None

    def run(self, work: Callable[[Transaction], T], clock: Clock) -> tuple[T, list[tuple[str, int]]]:
        """One transaction: what `work` returns, and `(session, head)` of every session it moved."""
        if self._failed is not None:
            raise self._failed
        with sentences(self._path):
            connection = self._thread.connection()
            connection.execute("begin immediate")
            transaction = Transaction(SqliteView(connection), clock.now_us())
            try:
                result = work(transaction)
                write(connection, transaction)
            except BaseException:
                self._roll_back(connection)
                raise
            if not transaction.sealed:
                self._roll_back(connection)
            else:
                self._commit(connection, transaction.sealed[-1])
        return result, [(session_id, row.head) for session_id, row in transaction.rows.items()]

    def check_vocabulary(self, session_id: str) -> None:
        """Refuse a session in which a newer program wrote (S19). Inside a transaction."""
        found = self._thread.connection().execute(SQL["vocabulary"], {"session_id": session_id}).fetchone()
        if found is not None and number(found[0], session_id) > SCHEMA:
            raise SchemaTooNew(
                f"session {session_id} holds events of schema {found[0]}, this Holdfast knows {SCHEMA}; nothing was "
                "written: upgrade Holdfast and try again",
                session_id=session_id,
            )

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot instead of the session's earlier one."""
        if self._failed is not None:
            raise self._failed
        with sentences(self._path):
            self._thread.connection().execute(
                SQL["save_snapshot"],
                {
                    "session_id": snapshot.session_id,
                    "seq": snapshot.seq,
                    "hash": snapshot.hash,
                    "fold_digest": snapshot.fold_digest,
                    "digest": hashlib.sha256(snapshot.state).digest(),
                    "state": snapshot.state,
                },
            )

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            self._thread.reopen()

    def _commit(self, connection: sqlite3.Connection, last: Sealed) -> None:
        try:
            connection.execute("commit")
        except sqlite3.Error as error:
            self._roll_back(connection)
            trouble = translated(error, self._path)
            if isinstance(trouble, StorageFull) and code_of(error) == sqlite3.SQLITE_FULL:
                raise trouble from error
            if not self._kept_after_all(last):
                self._failed = trouble
                raise trouble from error

    def _kept_after_all(self, last: Sealed) -> bool:
        """Whether a commit that failed to answer is there, and on the disk for good.

        It is read back by its chain hash, which binds the draft's id. Being there is not enough after a
        failed sync: the checkpoint copies it into the database and syncs that.
        """
        try:
            connection = self._thread.reopen()
            values = {"session_id": last.event.session_id, "seq": last.event.seq}
            found = connection.execute(SQL["event_hash"], values).fetchone()
            if found is None or found[0] != last.event.hash:
                return False
            busy, frames, copied = connection.execute("pragma wal_checkpoint(full)").fetchone()
            return bool(not busy and frames == copied)
        except (sqlite3.Error, LogUnavailable):
            return False
