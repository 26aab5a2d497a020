"""Waiting for a session's head to move, or for anything at all, whoever moves it.

What this process appends is told at once. For other processes one thread looks at SQLite's
`data_version`, which costs a read of shared memory, and only while somebody waits.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from holdfast.errors import LogUnavailable
from holdfast.log.sqlite.connect import SQL
from holdfast.log.sqlite.thread import Soon, signal, soon_here

POLL_S = 0.02

ANYTHING = ""
"""Waited for instead of a session: any move in the log. Its head is the watch's `token`."""


class Waiter:
    """Somebody who waits in an event loop until a session's head is beyond `after`."""

    __slots__ = ("_soon", "after", "event", "session_id")

    def __init__(self, session_id: str, after: int, soon: Soon) -> None:
        self.session_id = session_id
        self.after = after
        self.event = anyio.Event()
        self._soon = soon

    def wake(self) -> None:
        """From any thread."""
        signal(self._soon, self.event)


class Watch:
    """The waiters of one store. `connect` opens a connection for the thread; it may raise our errors.

    `token` counts the moves that were noticed, from 1. What moves while nobody waits is noticed when the
    next one does; the very first look, which has nothing to compare with, counts as a move.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self.token = 1
        self._waiters: set[Waiter] = set()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, session_id: str, after: int) -> Iterator[Waiter]:
        """Register; look at the head after that, so that no move is missed. Raises `LogUnavailable` when closed."""
        if self._stop.is_set():
            raise LogUnavailable("the log was closed while somebody waited on it; open it again")
        waiter = Waiter(session_id, after, soon_here())
        with self._lock:
            self._waiters.add(waiter)
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-log-watch", daemon=True)
                self._thread.start()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters.discard(waiter)
                if not self._waiters:
                    self._wanted.clear()

    def moved(self, session_id: str, head: int) -> None:
        """This process moved a head. From any thread."""
        if not self._waiters:
            return
        with self._lock:
            woken = [waiter for waiter in self._waiters if waiter.session_id == session_id and waiter.after < head]
        for waiter in woken:
            waiter.wake()

    def close(self) -> None:
        """End the thread and wake everybody. Blocks for at most one look."""
        self._stop.set()
        self._wanted.set()
        self._wake_all()
        if self._thread is not None:
            self._thread.join()

    def _wake_all(self) -> None:
        with self._lock:
            woken = list(self._waiters)
        for waiter in woken:
            waiter.wake()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        seen: int | None = None
        while not self._stop.is_set():
            self._wanted.wait()
            try:
                connection = connection or self._connect()
                (version,) = connection.execute("pragma data_version").fetchone()
                if version != seen:
                    seen = version
                    self._look(connection)
            except Exception:
                # Whoever waits reads the head for itself and meets the same trouble with a sentence.
                self._wake_all()
                _closed(connection)
                connection, seen = None, None
            self._stop.wait(POLL_S)
        _closed(connection)

    def _look(self, connection: sqlite3.Connection) -> None:
        self.token += 1
        self.moved(ANYTHING, self.token)
        with self._lock:
            sessions = {waiter.session_id for waiter in self._waiters}
        for session_id in sessions - {ANYTHING}:
            found = connection.execute(SQL["session_head"], {"session_id": session_id}).fetchone()
            if found is not None:
                self.moved(session_id, int(found[0]))


def _closed(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        connection.close()
