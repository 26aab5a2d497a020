"""Reading the database, and noticing what other processes append."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from holdfast.clock import boot_s
from holdfast.facts.codec import SCHEMA, Event
from holdfast.log.base import WorkerRow
from holdfast.log.chain import StoredEvent, events_of, the_one
from holdfast.log.postgres.bell import listen
from holdfast.log.postgres.connect import Connection, PostgresDatabase, end
from holdfast.log.sql.read import FILTERS, Reader

_EACH = "jsonb_array_elements_text(cast(:{0} as jsonb)) as each(value)"
SLICE_S = 0.1
"""Longest time for which the end of a store waits for its probe, in seconds."""

_PAGE = 1_000
"""Number of events that are in memory at a time."""


class PostgresReader(Reader):
    """A reader on one connection, for one verb."""

    __slots__ = ("_connection", "_inside", "database")

    filters: ClassVar = FILTERS | {
        "ids": f"session_id in (select value from {_EACH.format('ids')})",
        "roots": f"root in (select value from {_EACH.format('roots')})",
        # Newlines keep words from matching across two fields.
        "words": f"not exists (select 1 from {_EACH.format('words')} where strpos(lower(goal || chr(10) || key || "
        "chr(10) || session_id || chr(10) || name || chr(10) || model), value) = 0)",
    }

    def __init__(self, connection: Connection) -> None:
        self.database = PostgresDatabase(connection)
        super().__init__(self.database)
        self._connection = connection
        self._inside = False

    def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        """Return the events at these positions, read together; see `Log.at`."""
        names, seqs = [name for name, _ in places], [seq for _, seq in places]
        with self._consistent():
            found = {
                (row[0], row[1]): events_of(row[0], [row[1:]], self._view.blob, after=row[1] - 1)
                for row in self._rows("events_at", names=names, seqs=seqs)
            }
            # An event that a fork shares with its origin is read alone, and so is one that does not exist: an error.
            return [the_one(found.get(each) or self.events(each[0], each[1] - 1, None, 1), *each) for each in places]

    def stored(self, session_id: str) -> Iterator[StoredEvent]:
        """Return one session's stored events, a page in memory at a time."""
        after = 0
        while page := self._rows("events", session_id=session_id, after=after, count=_PAGE).fetchall():
            yield from page
            after = page[-1][0]

    def living(self, names: list[str], *, wary: bool) -> dict[str, str]:
        """Return those of the workers whose beats are young, with their seats; with `wary`, all that have a row."""
        return dict(self._rows("living", names=names, wary=wary).fetchall())

    def fleet(self) -> list[WorkerRow]:
        """Return the workers whose beats are young."""
        return [WorkerRow(*row) for row in self._rows("fleet")]

    def is_served(self, session_id: str) -> bool:
        """Return True if a worker can run that session."""
        ((served,),) = self._rows("served", session_id=session_id, vocabulary=SCHEMA)
        return bool(served)

    @contextmanager
    def _consistent(self) -> Iterator[None]:
        if self._inside:
            yield
            return
        self._connection.execute("begin isolation level repeatable read, read only")
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
            end(self._connection)


class TableProbe:
    """A connection that can tell if any transaction appended.

    A position that is found may still be followed by a lower one, of a transaction that began earlier. So positions are
    looked at again until all transactions that could take them have ended.
    """

    def __init__(self, connection: Connection) -> None:
        listen(connection)
        self._connection = connection
        self._db = PostgresDatabase(connection)
        self._floor: int | None = None
        self._seen: set[int] = set()

    def moved(self) -> bool:
        """Return True if there are events that the last call did not find, and for the first one."""
        first = self._floor is None
        ((floor, positions),) = self._db.run("moves", {"floor": 1 << 62 if first else self._floor})
        new = bool(set(positions) - self._seen)
        self._floor, self._seen = floor, {position for position in positions if position >= floor}
        return first or new

    def wait(self, stop: threading.Event, seconds: float) -> list[str]:
        """Block for that time, or until the bell rings; returns the rings."""
        until_s = boot_s() + seconds
        while not stop.is_set() and (left_s := until_s - boot_s()) > 0:
            rings = [each.payload for each in self._connection.notifies(timeout=min(left_s, SLICE_S), stop_after=1)]
            if rings:
                return rings
        return []

    def head(self, session_id: str) -> int | None:
        """Return a session's head."""
        found = self._db.run("session_head", {"session_id": session_id}).fetchone()
        return int(found[0]) if found is not None else None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
