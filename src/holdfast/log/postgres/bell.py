"""The bell: tells other processes at once that a session became due (S27).

It rings after the commit, on a connection of its own: within an append, commits that notify would wait for each other.
A ring may be lost, since every process that waits also looks by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
from psycopg.sql import SQL as Statement
from psycopg.sql import Identifier

from holdfast.log.postgres.connect import Connection, PostgresDatabase

LAST_S = 1.0
"""Longest time for which the end of a process waits for its last rings, in seconds."""


class Bell:
    """The bell of one store. Its thread starts with the first ring."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._told = threading.Condition()
        self._due: set[str] = set()
        self._ended = False
        self._thread: threading.Thread | None = None

    def ring(self, session_id: str = "") -> None:
        """Ring for a session that is due; without one, for all that a worker left. Returns at once."""
        with self._told:
            self._due.add(session_id)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-log-bell", daemon=True)
                self._thread.start()
            self._told.notify()

    def close(self) -> None:
        """End the thread after the rings that wait. Safe to repeat."""
        with self._told:
            self._ended = True
            self._told.notify()
        if self._thread is not None:
            self._thread.join(LAST_S)

    def _work(self) -> None:
        connection: Connection | None = None
        while due := self._next():
            try:
                if connection is None:
                    connection = self._connect()
                    connection.execute("set synchronous_commit = off")
                PostgresDatabase(connection).run("ring", {"names": due})
            except psycopg.Error:  # the others look by themselves
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _next(self) -> list[str]:
        """Wait for rings, and return all that there are; none at the end."""
        with self._told:
            self._told.wait_for(lambda: self._due or self._ended)
            due, self._due = sorted(self._due), set()
            return due


def listen(connection: Connection) -> None:
    """Receive the rings of this log on a connection."""
    ((folder,),) = connection.execute("select current_schema()")
    connection.execute(Statement("listen {}").format(Identifier(f"holdfast {folder}")))
