"""The tables of the log: created and migrated by an explicit call only, and checked before each use."""

from __future__ import annotations

from itertools import chain

import psycopg
from psycopg.sql import SQL as Statement
from psycopg.sql import Identifier

from holdfast.errors import LogUnavailable, SchemaTooNew
from holdfast.log.postgres.connect import FOLDER, POOLED, Connection, PostgresDatabase, connect, place_of, translated
from holdfast.log.postgres.places import Place
from holdfast.log.sql.statements import schema

TABLES = 8
"""Version of the tables in PostgreSQL. Up to 6 it was that of the tables in a file."""

_OLDEST = 6
_SCHEMA = ("schema.sql", "postgres_schema.sql")
"""Makes tables of the oldest version; migrations do the rest."""

_MIGRATIONS = {6: "postgres_from_6.sql", 7: "postgres_from_7.sql"}
_OLDEST_SERVER = 130_000
_MIGRATE = "run `holdfast migrate` with its address"


def check(address: str, at: Place | None = None, folder: str = FOLDER) -> None:
    """Raise `LogUnavailable` or `SchemaTooNew` unless the log there can be used, from this place if given.

    Nothing is written.
    """
    place = place_of(address)
    try:
        with connect(address, folder) as connection:
            _check_server(connection, place, holds_tables=True)
            version = _version(connection)
            if version > TABLES:
                raise _too_new(place, version)
            if version < TABLES:
                raise LogUnavailable(
                    f"{place} has tables of version {version}, this Holdfast needs {TABLES}; nothing was "
                    f"written: {_MIGRATE}"
                )
            if _is_ahead(connection):
                raise LogUnavailable(
                    f"the tables in {place} were copied from another server, and their order does not continue on this "
                    f"one; nothing was written: {_MIGRATE}"
                )
            if at is not None:
                _check_seat(connection, at)
    except psycopg.Error as error:
        raise translated(error, place) from error


def migrate(address: str, folder: str = FOLDER) -> tuple[int, int]:
    """Create the tables, or bring them to the current version, in one transaction.

    Returns the version before, 0 without tables, and after. Raises `LogUnavailable` or `SchemaTooNew`.
    """
    place = place_of(address)
    try:
        with connect(address, folder) as connection:
            _check_server(connection, place, holds_tables=False)  # a pooler may refuse to begin a transaction
            connection.execute("set lock_timeout = 0")
            connection.execute("begin")
            connection.execute("select pg_advisory_xact_lock(hashtextextended('holdfast migrate', 2))")
            connection.execute(Statement("create schema if not exists {}").format(Identifier(folder)))
            before = _version(connection) if _check_server(connection, place, holds_tables=False) else 0
            if before > TABLES:
                raise _too_new(place, before)
            steps = [_MIGRATIONS[version] for version in range(before or _OLDEST, TABLES)]
            for statement in chain.from_iterable(map(schema, steps if before else (*_SCHEMA, *steps))):
                # Bytes decide the order of text, as in SQLite, and not the language of the server.
                connection.execute(statement.replace(" text", ' text collate "C"'))
            PostgresDatabase(connection).run("set_schema_version", {"version": str(TABLES)})
            if before and _is_ahead(connection):
                connection.execute("drop index events_by_position")
                PostgresDatabase(connection).run("renumber")
                connection.execute("create unique index events_by_position on events (position)")
            connection.execute("commit")
            return before, TABLES
    except psycopg.Error as error:
        raise translated(error, place) from error


def take_over(address: str, place_id: str, former: str = "", folder: str = FOLDER) -> tuple[str, int]:
    """Make this place that of all sessions of a former one, which is lost. Returns the id of that, and their trees.

    Without `former`, it is the only other place that has sessions and no worker that lives; without any, the id is
    empty. Raises `LogUnavailable` while a worker there lives or may live, and if there are several.
    """
    place = place_of(address)
    check(address, folder=folder)
    try:
        with connect(address, folder) as connection, connection.transaction():
            db = PostgresDatabase(connection)
            connection.execute("select pg_advisory_xact_lock(hashtextextended('holdfast migrate', 2))")
            connection.execute("lock table workers in share mode")  # a beat that is on its way waits
            lost = dict(db.run("lost_places", {"place": place_id}).fetchall())
            if not former and len(lost) > 1:
                raise LogUnavailable(
                    f"{place} has sessions of several homes without a worker ({', '.join(lost)}); nothing was changed: "
                    f"name the one that is lost, such as --take-over --lost {min(lost)}"
                )
            former = former or next(iter(lost), "")
            ((living,),) = db.run("living_at", {"place": former})
            if living:
                raise LogUnavailable(
                    f"a worker of the home {former} lives, or lived some seconds ago; nothing was changed: stop it, or "
                    "wait a moment if its machine is lost, and try again"
                )
            moved = db.run("move_trees", {"place": place_id, "former": former}).rowcount if former else 0
            return former, moved
    except psycopg.Error as error:
        raise translated(error, place) from error


def _check_server(connection: Connection, place: str, *, holds_tables: bool) -> bool:
    """Return True if there are tables. Raises `LogUnavailable` for a server that cannot hold the log."""
    ((encoding, commits, read_only, version, exists, pid),) = PostgresDatabase(connection).run("server")
    problem = ""
    if pid != connection.info.backend_pid:  # a pooler names a process of its own when one connects
        problem = POOLED
    elif version < _OLDEST_SERVER:
        problem = "is older than PostgreSQL 13: use a newer server"
    elif encoding != "UTF8":
        problem = f"stores text as {encoding}: create a database with the encoding UTF8"
    elif commits == "off":
        problem = "acknowledges commits before they are on its disk: set synchronous_commit to on for this user"
    elif read_only == "on":
        problem = "is read-only, such as a standby: use the address of the primary"
    elif holds_tables and not exists:
        problem = f"has no log: {_MIGRATE}"
    if problem:
        raise LogUnavailable(f"{place} {problem}; nothing was written")
    return bool(exists)


def _version(connection: Connection) -> int:
    found = PostgresDatabase(connection).run("schema_version").fetchone()
    return int(found[0]) if found else 0


def _is_ahead(connection: Connection) -> bool:
    ((ahead,),) = PostgresDatabase(connection).run("ahead")
    return bool(ahead)


def _check_seat(connection: Connection, at: Place) -> None:
    """Refuse a home that is a copy of another one: workers of both would take each other for dead."""
    other = PostgresDatabase(connection).run("others_at", {"place": at.place_id, "seat": at.seat}).fetchone()
    if other is not None:
        raise LogUnavailable(
            f"worker {other[0]} on {other[1]} runs, or ran some seconds ago, for a home with the id of this one "
            f"({at.place_id}), so one is its copy; nothing was written: stop it, or remove the file `workers/place` of "
            "this home to make it another one"
        )


def _too_new(place: str, version: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"{place} has tables of version {version}, this Holdfast supports {TABLES}; nothing was written: "
        "upgrade Holdfast and try again"
    )
