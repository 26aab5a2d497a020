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
        self._rings: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ring(self) -> None:
        """Ring, from any thread. Returns at once."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-log-bell", daemon=True)
                self._thread.start()
        self._rings.put(True)

    def close(self) -> None:
        """End the thread after the rings that wait. Safe to repeat."""
        self._rings.put(False)
        if self._thread is not None:
            self._thread.join(LAST_S)

    def _work(self) -> None:
        connection: Connection | None = None
        while self._rings.get():
            while not self._rings.empty():
                if not self._rings.get():
                    self._rings.put(False)
                    break
            try:
                if connection is None:
                    connection = self._connect()
                    connection.execute("set synchronous_commit = off")
                PostgresDatabase(connection).run("ring")
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
