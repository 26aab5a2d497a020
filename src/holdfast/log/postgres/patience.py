"""Waiting for a database that is away, and running a transaction again after a race."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg

from holdfast.clock import SystemClock
from holdfast.log.postgres.connect import RACED, Connection, is_lost, translated
from holdfast.log.sql.threads import ConnectionThread

T = TypeVar("T")

PATIENCE_S = 120.0
"""Seconds without the database after which a verb gives up. A restart or a failover is shorter."""

_RACES_MAX = 20
_REST_S = 0.1
_REST_MAX_S = 2.0


class Patience:
    """The patience of the jobs on some threads. After `close`, none waits any more."""

    def __init__(self, place: str, threads: ConnectionThread[Connection], patience_s: float) -> None:
        self.place = place
        self._threads = threads
        self._patience_s = patience_s
        self._closed = threading.Event()
        self._clock = SystemClock()

    def close(self) -> None:
        """End all waiting."""
        self._closed.set()

    def through(self, job: Callable[[], T]) -> T:
        """Run a job, again after a race, and on another connection while the database is away."""
        races, since_s = 0, self._clock.monotonic_s()
        rest_s = _REST_S
        while True:
            try:
                return job()
            except psycopg.Error as error:
                if error.sqlstate in RACED and races < _RACES_MAX:
                    races += 1
                    continue
                self._threads.drop()
                waited_s = self._clock.monotonic_s() - since_s
                if not is_lost(error) or waited_s > self._patience_s or self._closed.is_set():
                    raise translated(error, self.place) from error
            self._closed.wait(rest_s)
            rest_s = min(2 * rest_s, _REST_MAX_S)
