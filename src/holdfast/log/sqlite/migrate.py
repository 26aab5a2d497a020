"""Migration of tables to the current version, in one transaction; new columns are filled from the events."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from msgspec.structs import replace

from holdfast.errors import LogDamaged
from holdfast.log.sql.statements import SCHEMA_VERSION, Database, migration
from holdfast.log.sql.tables import row_values, save_account, save_item
from holdfast.log.sqlite.connect import SQL, SqliteDatabase, connect, prepare_file, sentences, version_of
from holdfast.log.sqlite.read import SqliteReader
from holdfast.log.sqlite.watermark import check_acknowledged
from holdfast.log.verify import Rebuilt

ROWS_VERSION = 6
"""Last version that changed what rows hold; later ones add only indexes, so nothing is filled from the events."""


def open_file(path: Path, busy_timeout_s: float, *, accept_loss: bool = False) -> None:
    """Create or migrate the database file, or refuse it before anything is written.

    Raises `LogUnavailable`, `LogDamaged`, `SchemaTooNew`, `StorageFull`, and, unless the loss is accepted,
    `EventsLost`.
    """
    if not accept_loss:
        check_acknowledged(path, busy_timeout_s)
    if prepare_file(path, busy_timeout_s) == SCHEMA_VERSION:
        return
    connection = connect(path, busy_timeout_s)
    try:
        with sentences(path):
            _migrate(connection, path)
    finally:
        connection.close()


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("begin immediate")
    try:
        before = version_of(connection, path)
        for version in range(before, SCHEMA_VERSION):  # another process may have migrated them
            for statement in migration(version):
                connection.execute(statement)
        if before < ROWS_VERSION:
            _refill(SqliteDatabase(connection), SqliteReader(connection, path))
        if before < SCHEMA_VERSION:
            connection.execute(SQL["set_schema_version"], {"version": str(SCHEMA_VERSION)})
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _refill(db: Database, reader: SqliteReader) -> None:
    """Rebuild the rows beside the events (S20).

    A session with damage or erased bodies keeps its row, and `verify` reports it. Accounts then keep their sums,
    since these cannot be recomputed.
    """
    rebuilt = Rebuilt()
    unsure: set[str] = set()
    for session_id in reader.session_ids():
        try:
            rebuilt.session(session_id, reader.stored(session_id), reader.blob)
        except LogDamaged:
            unsure.add(session_id)
    unsure |= rebuilt.partly
    for session_id, row in rebuilt.rows.items():
        if session_id not in unsure:
            values = {**row_values(row), "vocabulary": rebuilt.vocabularies[session_id], "was": row.head}
            db.change("update_session", values)
    for item in rebuilt.items.values():
        if item.session_id not in unsure:
            save_item(db, item)
    for account in reader.accounts():
        again = rebuilt.books.accounts().get(account.account_id)
        if again is not None:
            kept = again if not unsure else replace(account, spend=again.spend, caps_us=again.caps_us)
            save_account(db, kept)
