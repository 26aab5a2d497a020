"""The bell: tells other processes at once that a session became due (S27).

It rings after the commit, on a connection of its own: within an append, commits that notify would wait for each other.
A ring may be lost, since every process that waits also looks by itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import psycopg
from psycopg.sql import SQL as Statement
from psycopg.sql import Identifier

from holdfast.errors import LogUnavailable
from holdfast.log.postgres.connect import Connection, PostgresDatabase

LAST_S = 1.0
"""Longest time for which the end of a process waits for its last rings, in seconds."""


class Bell:
    """The bell of one store. Its thread starts with the first ring."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._rings: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ring(self, session_id: str = "") -> None:
        """Ring for a session that is due; without one, for all that a worker left. Returns at once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-log-bell", daemon=True)
                self._thread.start()
        self._rings.put(session_id)

    def close(self) -> None:
        """End the thread after the rings that wait. Safe to repeat."""
        self._rings.put(None)
        if self._thread is not None:
            self._thread.join(LAST_S)

    def _work(self) -> None:
        connection: Connection | None = None
        while (first := self._rings.get()) is not None:
            names = {first}
            while not self._rings.empty():
                name = self._rings.get()
                if name is None:
                    self._rings.put(None)
                    break
                names.add(name)
            try:
                if connection is None:
                    connection = self._connect()
                    connection.execute("set synchronous_commit = off")
                PostgresDatabase(connection).run("ring", {"names": sorted(names)})
            except (psycopg.Error, LogUnavailable):  # the others look by themselves
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()


def listen(connection: Connection) -> None:
    """Receive the rings of this log on a connection."""
    ((folder,),) = connection.execute("select current_schema()")
    connection.execute(Statement("listen {}").format(Identifier(f"holdfast {folder}")))
