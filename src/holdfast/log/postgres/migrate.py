"""The tables of the log: created and migrated by an explicit call only, and checked before each use."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg.sql import SQL as Statement
from psycopg.sql import Identifier

from holdfast.errors import LogUnavailable, SchemaTooNew
from holdfast.ids import Entropy
from holdfast.log.postgres.connect import FOLDER, Connection, PostgresDatabase, connect, place_of, translated
from holdfast.log.sql.statements import SCHEMA_VERSION, schema

_OLDEST_SERVER = 130_000
_MIGRATE = "run `holdfast migrate` with its address"


def check(address: str, place_id: str, folder: str = FOLDER) -> None:
    """Raise `LogUnavailable` or `SchemaTooNew` unless the log there can be used from this place. Nothing is written,
    except for the id of the first place. Without `place_id`, any place will do.
    """
    place = place_of(address)
    try:
        with connect(address, folder) as connection:
            _check_server(connection, place, holds_tables=True)
            version = _version(connection)
            if version > SCHEMA_VERSION:
                raise _too_new(place, version)
            if version < SCHEMA_VERSION:
                raise LogUnavailable(
                    f"{place} has tables of version {version}, this Holdfast needs {SCHEMA_VERSION}; nothing was "
                    f"written: {_MIGRATE}"
                )
            if _is_ahead(connection):
                raise LogUnavailable(
                    f"the tables in {place} were copied from another server, and their order does not continue on this "
                    f"one; nothing was written: {_MIGRATE}"
                )
            if place_id:
                _check_place(connection, place, place_id)
    except psycopg.Error as error:
        raise translated(error, place) from error


def migrate(address: str, folder: str = FOLDER) -> tuple[int, int]:
    """Create the tables, or bring them to the current version, in one transaction.

    Returns the version before, 0 without tables, and after. Raises `LogUnavailable` or `SchemaTooNew`.
    """
    place = place_of(address)
    try:
        with connect(address, folder) as connection:
            connection.execute("set lock_timeout = 0")
            connection.execute("begin")
            connection.execute("select pg_advisory_xact_lock(hashtextextended('holdfast migrate', 2))")
            connection.execute(Statement("create schema if not exists {}").format(Identifier(folder)))
            before = _version(connection) if _check_server(connection, place, holds_tables=False) else 0
            if before > SCHEMA_VERSION:
                raise _too_new(place, before)
            if not before:
                for statement in (*schema(), *schema("postgres_schema.sql")):
                    # Bytes decide the order of text, as in SQLite, and not the language of the server.
                    connection.execute(statement.replace(" text", ' text collate "C"'))
                values = {"version": str(SCHEMA_VERSION)}
                PostgresDatabase(connection).run("set_schema_version", values)
            elif _is_ahead(connection):
                connection.execute("drop index events_by_position")
                PostgresDatabase(connection).run("renumber")
                connection.execute("create unique index events_by_position on events (position)")
            connection.execute("commit")
            return before, SCHEMA_VERSION
    except psycopg.Error as error:
        raise translated(error, place) from error


def take_over(address: str, place_id: str, folder: str = FOLDER) -> str:
    """Make this place the one that the log belongs to, in place of one that is lost. Returns the id of that one.

    From then on no process there takes a session or opens the log. Raises `LogUnavailable` while a worker there lives,
    or may live. Returns an empty text where the log is this place's already.
    """
    place = place_of(address)
    check(address, "", folder)
    try:
        with connect(address, folder) as connection, connection.transaction():
            db = PostgresDatabase(connection)
            connection.execute("select pg_advisory_xact_lock(hashtextextended('holdfast migrate', 2))")
            connection.execute("lock table workers in share mode")  # a beat that is on its way waits, and is refused
            owner = _owner(db, place_id)
            if owner == place_id:
                return ""
            ((living,),) = db.run("living_at", {"place": owner})
            if living:
                raise LogUnavailable(
                    f"a worker of the home that {place} belongs to ({owner}) lives, or lived some seconds ago; nothing "
                    "was changed: stop it, or wait a moment if its machine is lost, and try again"
                )
            db.run("move_place", {"place": place_id})
            return owner
    except psycopg.Error as error:
        raise translated(error, place) from error


def place_id_in(workers: Path, entropy: Entropy) -> str:
    """Return the id of this place: a random one, kept beside the workers' lock files."""
    path = workers / "place"
    workers.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(f"plc_{entropy(16).hex()}")
    except FileExistsError:
        pass
    return path.read_text(encoding="utf-8")


def _check_server(connection: Connection, place: str, *, holds_tables: bool) -> bool:
    """Return True if there are tables. Raises `LogUnavailable` for a server that cannot hold the log."""
    encoding, commits, read_only, version, exists = PostgresDatabase(connection).run("server").fetchone() or (
        "",
        "",
        "",
        0,
        0,
    )
    problem = ""
    if version < _OLDEST_SERVER:
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


def _check_place(connection: Connection, place: str, place_id: str) -> None:
    """Refuse another place: a brain there would give up the hands of this one while they still run."""
    owner = _owner(PostgresDatabase(connection), place_id)
    if owner != place_id:
        raise LogUnavailable(
            f"{place} is the log of another home ({owner}), and a database serves one home; nothing was written: use "
            "that home or another database, or if its machine is lost: holdfast migrate --take-over"
        )


def _owner(db: PostgresDatabase, place_id: str) -> str:
    """Return the id of the place that a log belongs to: of this one if it is the first."""
    db.run("claim_place", {"place": place_id})
    ((owner,),) = db.run("place")
    return str(owner)


def _too_new(place: str, version: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"{place} has tables of version {version}, this Holdfast supports {SCHEMA_VERSION}; nothing was written: "
        "upgrade Holdfast and try again"
    )
