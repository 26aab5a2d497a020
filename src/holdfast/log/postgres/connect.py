"""Connections to PostgreSQL: settings, statements, types, and the translation of its errors."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import psycopg
from psycopg import conninfo, errors
from psycopg.abc import Buffer
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper, StrBinaryDumper, TextBinaryLoader

from holdfast.errors import HoldfastError, LogDamaged, LogUnavailable, StorageFull, UsageError
from holdfast.log.sql.statements import queries

Connection = psycopg.Connection[Any]

FOLDER = "holdfast"
"""Name of the schema (a folder of tables) that the log is in, unless it is opened with another one."""

EVENTS_MAX = 1 << 20
"""Events that one transaction can place: a position has 20 bits for them."""

_SETTINGS = {
    "idle_in_transaction_session_timeout": "5s",  # a stopped process keeps the rows of its transaction no longer
    "lock_timeout": "15s",
    "client_encoding": "UTF8",
}
_CONNECT_S = 5

RACED = frozenset(("40001", "40P01", "22012", "23505", "55P03"))
"""Codes after which the whole transaction is run again: another writer was faster, or holds what this one needs."""

_GONE = frozenset(("53300", "25006", "25P03"))
_LOST_CLASSES = ("08", "57")


POOLED = "passes connections through a pooler, which lends them to others: use the address of the server itself"
"""Problem of an address whose statements, locks, and notifications would reach other clients' connections."""


def as_postgres(statement: str) -> str:
    """Spell the parameters of a statement as psycopg wants them."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement).replace("?", "%s")


_TEXT = queries("queries.sql", "postgres.sql")
_TEXT["append_one"] = _TEXT["append_one"].format(update_session=_TEXT["update_session"])
_CHANGES = ("move_session", "update_session", "save_item")
_ONE_ROW = "with changed as ({} returning 1) select 1 / count(*) from changed"
"""Makes a statement that must change one row fail if it changes none; in a pipeline its count comes too late."""

SQL = {name: as_postgres(_ONE_ROW.format(text) if name in _CHANGES else text) for name, text in _TEXT.items()}
_filtered = cache(lambda name, conditions: as_postgres(_TEXT[name].format(conditions=conditions)))


class PostgresDatabase:
    """A connection that runs statements by name; see `Database`."""

    __slots__ = ("_connection", "_events")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._events = 0

    def run(self, name: str, values: Any = (), conditions: str = "") -> psycopg.Cursor[Any]:
        """Run a statement."""
        statement = _filtered(name, conditions) if conditions else SQL[name]
        return self._connection.execute(statement, values, binary=True)

    def pipeline(self) -> AbstractContextManager[object]:
        """Send the statements of the block at once. The first error is raised at its end."""
        return self._connection.pipeline()

    def change(self, name: str, values: Any) -> bool:
        """Run a statement that changes one row, or fails."""
        self.run(name, values)
        return True

    def insert_event(self, values: tuple[object, ...]) -> None:
        """Insert an event, after those that this object inserted: there is one for each transaction."""
        if self._events >= EVENTS_MAX:
            raise UsageError(f"one append takes at most {EVENTS_MAX} events; nothing was written: append fewer at once")
        self.run("insert_event", (self._events, *values))
        self._events += 1


_ESCAPE = "\ue0ff"
"""Stands before an escaped character: PostgreSQL stores no NUL in text."""


class _Text(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or _ESCAPE in obj:
            obj = obj.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")
        return super().dump(obj)


class _StoredText(TextBinaryLoader):
    def load(self, data: Buffer) -> bytes | str:
        text = super().load(data)
        if isinstance(text, str) and _ESCAPE in text:
            return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)
        return text


def connect(address: str, folder: str = FOLDER) -> Connection:
    """Connect, and let each statement be a transaction unless one was begun. Raises `psycopg.Error`."""
    theirs = conninfo.conninfo_to_dict(address).get("options") or ""
    ours = (f"-c {name}={value}" for name, value in {**_SETTINGS, "search_path": folder}.items())
    connection = psycopg.connect(
        address,
        autocommit=True,
        options=" ".join((str(theirs), *ours)),
        application_name="holdfast",
        connect_timeout=_CONNECT_S,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=10_000,
    )
    for type_, dumper in ((str, _Text), (bytes, BytesBinaryDumper), (int, Int8BinaryDumper)):
        connection.adapters.register_dumper(type_, dumper)
    connection.adapters.register_loader("text", _StoredText)
    return connection


def end(connection: Connection, *, wrote: bool = False) -> None:
    """End a transaction, if there is one, and undo what it wrote; a broken connection is closed.

    One that wrote nothing is committed: psycopg forgets its prepared statements after a rollback.
    """
    try:
        if wrote or connection.info.transaction_status == TransactionStatus.INERROR:
            connection.rollback()
        else:
            connection.commit()
    except psycopg.Error:
        connection.close()


def place_of(address: str) -> str:
    """Return an address as messages show it: without a password."""
    try:
        given = conninfo.conninfo_to_dict(address)
    except psycopg.Error as error:
        raise UsageError(
            "the address of the log is no address of a PostgreSQL database; write it as postgresql://USER@HOST/DATABASE"
        ) from error
    host = given.get("host") or given.get("hostaddr") or "the local socket"
    port = f":{given['port']}" if "port" in given else ""
    return f"PostgreSQL at {host}{port}/{given.get('dbname', '')}"


def is_lost(error: psycopg.Error) -> bool:
    """Return True for an error after which another connection may succeed."""
    code = error.sqlstate or ""
    if not code:
        return isinstance(error, errors.OperationalError | errors.InterfaceError)
    return code in _GONE or code[:2] in _LOST_CLASSES


def translated(error: psycopg.Error, place: str) -> HoldfastError:
    """Translate an error of PostgreSQL."""
    code, says = error.sqlstate or "", " ".join(str(error).split())
    # PgBouncer says so. One whose settings make it ignore the parameters connects, and is found by its process.
    if "unsupported startup parameter" in says:
        return LogUnavailable(f"{place} {POOLED}; nothing was written")
    if is_lost(error):
        return LogUnavailable(
            f"{place} cannot be reached ({says}); nothing was written by this command: check the address, the network, "
            "and the server, then try again"
        )
    if code in ("53100", "53200"):
        return StorageFull(
            f"{place} has no room ({says}); all acknowledged events are kept and nothing new was written: free some "
            "space there, then type the command again, or `holdfast wake` the session"
        )
    if code in RACED:
        return LogUnavailable(
            f"{place} is too busy: another program kept locking what this one needs ({says}); nothing was written: try "
            "again"
        )
    if code[:2] in ("28", "3D", "42"):
        return LogUnavailable(
            f"{place} refused this user or lacks a table ({says}); nothing was written: check the rights of the "
            "user, and that `holdfast migrate` was run"
        )
    return LogDamaged(
        f"{place} refused a statement of the log ({says}); nothing was written: see what `holdfast verify` finds", seq=0
    )
