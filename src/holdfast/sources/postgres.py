"""Rows of PostgreSQL as a source.

Rows do not become visible in the order of their ids: a transaction that took an id first may commit last. So the cursor
moves past rows only once every transaction that was open when they were read has ended. Until then it holds the
digests of the rows that were taken, and the query sees them again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import msgspec
import psycopg

from holdfast.errors import SourceError
from holdfast.sources.base import Polled, digest, excerpt, page
from holdfast.sources.settings import SqlSettings
from holdfast.sources.sql import Row, polled, rows_of

PENDING_MAX = 2_000
"""Rows that may be taken while an older transaction is open."""


class _Cursor(msgspec.Struct):
    """Position. All rows up to `after` were taken; rows up to `through` too, and it becomes `after` once all
    transactions before `xmax` have ended. `seen` are the rows after `after` that were taken.
    """

    after: Any
    seen: list[str] = []
    through: Any = None
    xmax: int = 0


class PostgresSource:
    """Rows of a PostgreSQL database. `password` is empty for none."""

    def __init__(self, settings: SqlSettings, password: str = "") -> None:
        self._settings = settings
        self._password = password

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`."""
        return await anyio.to_thread.run_sync(self._poll, cursor, limit)

    def _poll(self, cursor: str, limit: int) -> Polled:
        at = msgspec.json.decode(cursor, type=_Cursor) if cursor else _Cursor(self._settings.start)
        failure, again = "", True
        try:
            return self._read(at, limit)
        except psycopg.OperationalError as error:  # its message may have the address of the server, never the password
            failure = f"cannot be reached or gave up: {excerpt(str(error))}"
        except psycopg.Error as error:
            failure, again = f"refused the query: {excerpt(str(error))}", False
        raise SourceError(f"the database {failure}; nothing was taken", retryable=again)

    def _read(self, at: _Cursor, limit: int) -> Polled:
        with self._connection() as connection:
            ends = "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() AS s"
            xmin, xmax = (int(each) for each in connection.execute(ends).fetchone() or ("0", "0"))
            most = len(at.seen) + limit + 1
            columns, rows = self._select(connection, at.after, most)
        found = [
            row._replace(after=row.after if isinstance(row.after, int | float | str) else str(row.after))
            for row in rows_of(self._settings, columns, rows)
        ]
        marks = {_mark(row) for row in found}
        seen = set(at.seen) if len(rows) == most else set(at.seen) & marks
        new = [row for row in found if _mark(row) not in seen]
        taken = page(new, lambda row: row.after, limit)
        if len(seen) + len(taken) > PENDING_MAX:
            raise SourceError(
                f"a transaction in the database is open for so long that {PENDING_MAX} rows were taken since; nothing "
                "more is taken until it ends, so that no row of it is missed",
                retryable=True,
            )
        seen |= {_mark(row) for row in taken}
        more = len(new) > len(taken)
        left = found
        if at.xmax and xmin >= at.xmax and not more:  # no further row can appear up to `through`
            last = max((place for place, row in enumerate(found) if row.after == at.through), default=-1)
            left = found[last + 1 :]
            at, seen = _Cursor(at.through), seen & {_mark(row) for row in left}
        at.seen = sorted(seen)
        if left and not at.xmax:
            at.through, at.xmax = (taken if more else left)[-1].after, xmax
        return polled(taken, msgspec.json.encode(at).decode(), more)

    @contextlib.contextmanager
    def _connection(self) -> Any:
        """Open a connection whose one transaction sees one moment and cannot write."""
        options = f"-c default_transaction_read_only=on -c statement_timeout={round(self._settings.timeout_s * 1000)}"
        connection = psycopg.connect(
            self._settings.database,
            password=self._password or None,
            connect_timeout=max(2, round(self._settings.timeout_s)),
            options=options,
        )
        try:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield connection
        finally:
            connection.close()

    def _select(self, connection: Any, after: Any, limit: int) -> tuple[list[str], list[Sequence[Any]]]:
        """Run the query with a cursor of the server, so that a large result does not fill the memory."""
        query = re.sub(r"(?<!:):cursor\b", "%(cursor)s", self._settings.query.replace("%", "%%"))
        with connection.cursor(name="holdfast") as rows:
            rows.execute(query, {"cursor": after})
            return [column.name for column in rows.description], rows.fetchmany(limit)


def _mark(row: Row) -> str:
    return digest(row.after, row.found.key)[:12]
