"""A SQL query as a source: a table of SQLite or PostgreSQL whose rows are events.

The query selects the rows after `:cursor`, in the order of its first column, which is the value to continue after. The
connection cannot write.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import anyio.to_thread
import msgspec

from holdfast.errors import SourceError
from holdfast.sources.base import Offered, Polled, Rejected, digest, event, excerpt, page
from holdfast.sources.settings import SqlSettings


class Row(NamedTuple):
    """A row: the value to continue after, and its event."""

    after: Any
    found: Offered | Rejected


def rows_of(settings: SqlSettings, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Row]:
    """Return the rows of a result, whose order is checked. Raises `SourceError`."""
    if settings.key and settings.key not in columns:
        raise SourceError(f"the query has no column {settings.key!r}, the key; nothing was taken", retryable=False)
    named = columns.index(settings.key) if settings.key else 0
    found: list[Row] = []
    for row in rows:
        if row[0] is None or row[named] is None or (isinstance(row[0], float) and not math.isfinite(row[0])):
            raise SourceError("a row has no value to continue after or no key; nothing was taken", retryable=False)
        if found and not isinstance(row[0], str) and row[0] < found[-1].after:
            raise SourceError(
                f"the rows are not in the order of their first column ({columns[0]}); nothing was taken. Add ORDER BY "
                f"{columns[0]} to the query",
                retryable=False,
            )
        key = str(row[named])
        data = msgspec.to_builtins(dict(zip(columns, row, strict=True)), enc_hook=str)
        found.append(Row(row[0], event(key if len(key) <= 200 else digest(key), data)))
    return found


def polled(rows: Sequence[Row], cursor: str, more: bool) -> Polled:
    """Return the result of a poll."""
    events = tuple(row.found for row in rows if isinstance(row.found, Offered))
    return Polled(events, cursor, more, tuple(row.found for row in rows if isinstance(row.found, Rejected)))


class SqliteSource:
    """Rows of a SQLite database."""

    def __init__(self, settings: SqlSettings) -> None:
        self._settings = settings

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`. SQLite has one writer at a time, so no row appears behind one that was read."""
        return await anyio.to_thread.run_sync(self._poll, cursor, limit)

    def _poll(self, cursor: str, limit: int) -> Polled:
        settings = self._settings
        after = msgspec.json.decode(cursor) if cursor else settings.start
        address = f"file:{quote(settings.database)}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(address, uri=True, timeout=settings.timeout_s)) as connection:
                columns, rows = _select(connection, settings, after, limit + 1)
        except sqlite3.Error as error:
            why = f"the query failed: {excerpt(str(error))}; nothing was taken"
            raise SourceError(why, retryable=isinstance(error, sqlite3.OperationalError)) from error
        found = rows_of(settings, columns, rows)
        taken = page(found, lambda row: row.after, limit)
        after_these = msgspec.json.encode(taken[-1].after).decode() if taken else cursor
        return polled(taken, after_these, len(found) > len(taken))


_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def _select(
    connection: sqlite3.Connection, settings: SqlSettings, after: Any, limit: int
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run the query, which may only read, for as long as the settings allow."""

    def allow(action: int, first: str | None, second: str | None, *_: object) -> int:
        loads = action == sqlite3.SQLITE_FUNCTION and second == "load_extension"
        return sqlite3.SQLITE_OK if action in _READS and not loads else sqlite3.SQLITE_DENY

    connection.set_authorizer(allow)
    limiter = threading.Timer(settings.timeout_s, connection.interrupt)
    limiter.start()
    try:
        found = connection.execute(settings.query, {"cursor": after})
        return [column[0] for column in found.description], found.fetchmany(limit)
    finally:
        limiter.cancel()
        limiter.join()
