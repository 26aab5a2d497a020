"""Examination of a server that holds a log: what would lose acknowledged events, or end waits at the wrong time."""

from __future__ import annotations

from typing import NamedTuple

import psycopg

from holdfast.clock import Clock
from holdfast.log.postgres.connect import FOLDER, PostgresDatabase, connect, place_of, translated

OFFSET_MAX_S = 5.0
"""Difference between the clocks of this machine and of the database that is tolerated."""

CONNECTIONS_MIN = 14
"""Connections that one process may open."""


class Problem(NamedTuple):
    """One problem of the server, and how to mend it."""

    message: str
    fix: str


def examine(address: str, clock: Clock, folder: str = FOLDER) -> tuple[str, list[Problem]]:
    """Return the version of the server, and its problems. Raises `LogUnavailable`."""
    try:
        with connect(address, folder) as connection:
            sent_us = clock.now_us()
            found = PostgresDatabase(connection).run("health").fetchone()
            here_us = (sent_us + clock.now_us()) // 2
    except psycopg.Error as error:
        raise translated(error, place_of(address)) from error
    assert found is not None
    version, is_durable, standbys, synchronous, there_us, left = found
    problems = []
    if not is_durable:
        problems.append(
            Problem(
                "it acknowledges commits that a crash of its machine may lose",
                "set fsync and full_page_writes to on in its configuration",
            )
        )
    if standbys and not synchronous:
        problems.append(
            Problem(
                f"{standbys} of its standbys follow asynchronously: a failover to one loses acknowledged events",
                "name them in synchronous_standby_names, and set synchronous_commit to on for this user",
            )
        )
    off_s = (here_us - there_us) / 1e6
    if abs(off_s) > OFFSET_MAX_S:
        problems.append(
            Problem(
                f"the clock of this machine is {abs(off_s):,.0f} s {'ahead of' if off_s > 0 else 'behind'} that of the "
                "server: waits end at the wrong time",
                "synchronize both clocks (NTP)",
            )
        )
    if left < CONNECTIONS_MIN:
        problems.append(Problem(f"it has only {left} connections left", "raise max_connections, or end other clients"))
    return f"PostgreSQL {version}", problems
