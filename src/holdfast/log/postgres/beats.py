"""The life of workers by the clock of the database: a row each, refreshed by a thread of the worker's process (S5).

With a lifetime of 8 s, a row is refreshed every 2 s; `log.pulse` has the times.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg

from holdfast.clock import boot_s
from holdfast.log.postgres.connect import Connection, PostgresDatabase
from holdfast.log.postgres.places import Place
from holdfast.log.pulse import Pulse
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
        self._pulse = Pulse(ttl_s)
        self.trouble: psycopg.Error | None = None
        """Error of the last beat, if it failed."""
        self._soon: Soon | None = None
        self._stop = threading.Event()
        self._told = threading.Condition()
        self._thread: threading.Thread | None = None

    def is_fresh(self) -> bool:
        """See `Pulse.is_fresh`."""
        return self._pulse.is_fresh(boot_s())

    @property
    def lapses(self) -> int:
        """See `Pulse.lapses`."""
        return self._pulse.lapses

    def is_wary(self) -> bool:
        """See `Pulse.is_wary`."""
        return self._pulse.is_wary(boot_s())

    def enroll(self, worker_id: str, soon: Soon, limit: int | None = None) -> None:
        """Begin to beat for a worker. `soon` reaches the event loop that it works in; `limit` is as in `Pulse`."""
        with self._told:
            self._soon = soon
            self._pulse.enroll(worker_id, boot_s(), limit)
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
            self._pulse.looped(boot_s())

        connection: Connection | None = None
        while not self._stop.is_set():
            trouble: psycopg.Error | None = None
            if self._pulse.may_beat(boot_s()):
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
                    lambda: self._stop.is_set() or (self._pulse.is_new and self.trouble is None),
                    timeout=self.ttl_s / 4,
                )
        if connection is not None:
            with suppress(psycopg.Error):
                PostgresDatabase(connection).run("leave", {"names": list(self._pulse.limits)})
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
        sent_s, limits = boot_s(), dict(self._pulse.limits)
        values = self._place.beat(list(limits), list(limits.values()), self.ttl_s)
        if self._pulse.is_new:  # a crash must not lose the row of a worker, only its latest beats
            with connection.transaction():
                connection.execute("set local synchronous_commit = on")
                PostgresDatabase(connection).run("beat", values)
        else:
            PostgresDatabase(connection).run("beat", values)
        with self._told:
            self._pulse.acknowledged(limits, sent_s, boot_s())


def _close(connection: Connection | None) -> None:
    """Close a connection, broken or not."""
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()
