"""The life of workers by the clock of the database: a row each, refreshed by a thread of the worker's process (S5).

With a lifetime of 8 s, a row is refreshed every 2 s; a worker begins effects until 6 s after it sent its last
acknowledged beat, and others may take its sessions 8 s after the database got that beat. So it stops first, whatever
was lost or slow, as long as no clock runs a quarter faster than another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from holdfast.clock import boot_s
from holdfast.log.postgres.connect import Connection, PostgresDatabase
from holdfast.log.postgres.places import Place
from holdfast.log.sql.threads import Soon, hand_over

TTL_S = 8.0
"""Lifetime of a worker without a beat, in seconds."""


class Beats:
    """Beats for the workers of one process. The thread starts with the first that enrolls.

    It beats only while the event loop answers: a brain that hangs must not look alive.
    """

    def __init__(self, connect: Callable[[], Connection], place: Place, ttl_s: float = TTL_S) -> None:
        self.ttl_s = ttl_s
        self._connect = connect
        self._place = place
        self._limits: dict[str, int] = {}
        self._beaten: dict[str, int] = {}
        self._sent_s = 0.0
        self._wary_until_s = 0.0
        self._looped_s = 0.0
        self.trouble: psycopg.Error | None = None
        """Error of the last beat, if it failed."""
        self._soon: Soon | None = None
        self._stop = threading.Event()
        self._told = threading.Condition()
        self._thread: threading.Thread | None = None

    def is_fresh(self) -> bool:
        """Return True while no worker elsewhere can take a session of these workers."""
        return self._beaten == self._limits and boot_s() < self._sent_s + 0.75 * self.ttl_s

    def is_wary(self) -> bool:
        """Return True while other workers may live although their rows are old: this process lost the database for so
        long that they may have lost it too, and are about to beat again."""
        return boot_s() < self._wary_until_s

    def enroll(self, worker_id: str, soon: Soon, limit: int | None = None) -> None:
        """Begin to beat for a worker. `soon` reaches the event loop that it works in.

        `limit` is how many sessions it runs at a time, 0 for a command; None leaves it as it is.
        """
        with self._told:
            self._soon, self._looped_s = soon, boot_s()
            self._limits[worker_id] = self._limits.get(worker_id, 0) if limit is None else limit
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-log-beat", daemon=True)
                self._thread.start()
            self._told.notify_all()

    def wait(self) -> None:
        """Block until the workers' rows are fresh, or until the next beat failed."""
        with self._told:
            self._told.wait_for(lambda: self._stop.is_set() or self.is_fresh(), timeout=self.ttl_s / 4)

    def close(self) -> bool:
        """End the thread and delete the rows. Returns True if there were any. Safe to repeat."""
        with self._told:
            self._stop.set()
            self._told.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        return thread is not None

    def _work(self) -> None:
        def looped() -> None:
            self._looped_s = boot_s()

        connection: Connection | None = None
        while not self._stop.is_set():
            trouble: psycopg.Error | None = None
            if boot_s() < self._looped_s + self.ttl_s:
                try:
                    connection = connection or self._open()
                    self._beat(connection)
                except psycopg.Error as error:
                    _close(connection)
                    connection, trouble = None, error
            if self._soon is not None:
                hand_over(self._soon, looped)  # once the loop has ended, this worker ends one lifetime later
            with self._told:
                self.trouble = trouble
                self._told.notify_all()
                # A worker that is new, or the end, does not wait.
                self._told.wait_for(
                    lambda: self._stop.is_set() or (self._beaten != self._limits and self.trouble is None),
                    timeout=self.ttl_s / 4,
                )
        if connection is not None:
            with suppress(psycopg.Error):
                PostgresDatabase(connection).run("leave", {"names": list(self._limits)})
            _close(connection)

    def _open(self) -> Connection:
        connection = self._connect()
        try:
            connection.execute("set synchronous_commit = off")
            PostgresDatabase(connection).run("forget_workers")
        except psycopg.Error:
            _close(connection)
            raise
        return connection

    def _beat(self, connection: Connection) -> None:
        sent_s, limits = boot_s(), dict(self._limits)
        values = self._place.beat(list(limits), list(limits.values()), self.ttl_s)
        PostgresDatabase(connection).run("beat", values)
        with self._told:
            if self._beaten and sent_s > self._sent_s + self.ttl_s:
                self._wary_until_s = boot_s() + self.ttl_s
            self._sent_s, self._beaten = sent_s, limits


def _close(connection: Connection | None) -> None:
    """Close a connection, broken or not."""
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
