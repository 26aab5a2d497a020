"""A whole log, copied from a file to PostgreSQL or back: each table as it is, and the order of all events (S1).

Nobody writes to the source meanwhile. The target is complete, or empty as before.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from holdfast.errors import LogUnavailable, UsageError
from holdfast.log.postgres.connect import FOLDER, Connection, PostgresDatabase, connect, place_of, translated
from holdfast.log.postgres.migrate import check, migrate
from holdfast.log.postgres.places import Place
from holdfast.log.sql.statements import schema
from holdfast.log.sqlite.connect import connect as connect_file
from holdfast.log.sqlite.connect import prepare_file, sentences
from holdfast.log.sqlite.migrate import open_file

TABLES = tuple(each.split()[2] for each in schema() if each.startswith("create table ") and " meta " not in each)
"""The tables of a log, without `meta`, which each database has for itself."""

CHUNK = 1000
"""Rows that are written at a time."""

_BUSY_TIMEOUT_S = 30.0
_HOLDERS = "select holder from sessions where holder <> ''"

IsLive = Callable[[str], bool]


class Copied(msgspec.Struct, frozen=True):
    """Result of a copy: the number of sessions, and of events."""

    sessions: int
    events: int


def to_postgres(file: Path, address: str, at: Place, is_live: IsLive, folder: str = FOLDER) -> Copied:
    """Copy the log in a file into tables that have no session yet; they are created if needed.

    All sessions are at the place `at`. `is_live` tells whether a worker of that name lives. Raises `UsageError` for a
    wrong source or target, `LogUnavailable` while a worker holds a session, and what opening either log raises.
    """
    if not file.is_file():
        raise UsageError(f"there is no log in {file}; nothing was copied")
    open_file(file, _BUSY_TIMEOUT_S)
    migrate(address, folder)
    place = place_of(address)
    try:
        with closing(connect_file(file, _BUSY_TIMEOUT_S)) as source, connect(address, folder) as target:
            with sentences(file), target.transaction():
                source.execute("begin immediate")
                _refuse_held(name for (name,) in source.execute(_HOLDERS) if is_live(name))
                target.execute("lock table sessions, events in exclusive mode")
                if target.execute("select 1 from sessions limit 1").fetchone() is not None:
                    raise UsageError(f"{place} holds a log already; nothing was copied: use an empty database")
                counts = {}
                for table in TABLES:
                    rows = source.execute(f"select * from {table} order by rowid")
                    names = [each[0] for each in rows.description]
                    found: Iterable[Any] = rows
                    if table == "events":
                        names.append("position")
                        found = ((*row, number) for number, row in enumerate(rows, start=1))
                    into = f"insert into {table} ({', '.join(names)}) values ({', '.join(['%s'] * len(names))})"
                    counts[table] = _in_chunks(found, partial(target.cursor().executemany, into))
                PostgresDatabase(target).run("settle", {"place": at.place_id})
            return Copied(counts["sessions"], counts["events"])
    except psycopg.Error as error:
        raise translated(error, place) from error


def to_file(address: str, file: Path, draft: Path, folder: str = FOLDER) -> Copied:
    """Copy the log in PostgreSQL into `draft`, which is to become the new `file`.

    Raises `UsageError` if the file exists, `LogUnavailable` while a worker holds a session, and what opening either
    log raises.
    """
    if os.path.lexists(file):
        raise UsageError(f"{file} exists; nothing was copied: name a new file")
    check(address, folder=folder)
    prepare_file(draft, _BUSY_TIMEOUT_S)
    try:
        with closing(connect_file(draft, _BUSY_TIMEOUT_S)) as target, connect(address, folder) as source:
            with sentences(draft), source.transaction():
                source.execute("lock table sessions, events in share mode")
                holders = [name for (name,) in source.execute(_HOLDERS)]
                _refuse_held(PostgresDatabase(source).run("living", {"names": holders, "wary": False}))
                target.execute("begin immediate")
                counts = {table: _from(source, table, target) for table in TABLES}
                target.execute("commit")
            return Copied(counts["sessions"], counts["events"])
    except psycopg.Error as error:
        raise translated(error, place_of(address)) from error


def empty(address: str, folder: str = FOLDER) -> None:
    """Remove a copy from its tables."""
    with connect(address, folder) as connection:
        connection.execute(f"truncate trees, {', '.join(TABLES)}")


def _from(source: Connection, table: str, target: sqlite3.Connection) -> int:
    """Copy one table of PostgreSQL; returns the number of its rows."""
    order = "position" if table == "events" else "1, 2"
    with source.cursor("copied", binary=True) as rows:
        names = [name for _, name, *_ in target.execute(f"pragma table_info({table})")]
        rows.execute(f"select {', '.join(names)} from {table} order by {order}")
        into = f"insert into {table} ({', '.join(names)}) values ({', '.join('?' * len(names))})"
        return _in_chunks(rows, partial(target.executemany, into))


def _in_chunks(rows: Iterable[Any], write: Callable[[list[Any]], object]) -> int:
    count, left = 0, iter(rows)
    while chunk := [*islice(left, CHUNK)]:
        write(chunk)
        count += len(chunk)
    return count


def _refuse_held(living: Iterable[object]) -> None:
    if any(True for _ in living):
        raise LogUnavailable("a worker holds a session of this log; nothing was copied: stop it, and try again")
