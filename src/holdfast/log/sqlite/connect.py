"""Opening the file: settings, tables, and the refusal of a file that is not ours or newer than we are."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from contextlib import suppress
from pathlib import Path

from holdfast.errors import LogUnavailable, SchemaTooNew
from holdfast.log.sqlite.trouble import code_of, damaged_file, locks_trouble, sentences
from holdfast.log.statements import queries, schema

SQL = queries()

SCHEMA_VERSION = 5
"""Version of the tables in `sql/schema.sql`."""

PAGE_SIZE = 4096
"""Bytes of a page. A commit writes whole pages: larger ones waste less of the disk and more of every append."""

_BETWEEN_TRIES_S = 0.05


def connect(path: Path, busy_timeout_s: float, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection with the log's settings to a file that exists. Raises our errors."""
    with sentences(path):
        connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
        try:
            connection.execute("pragma synchronous = full")
            connection.execute("pragma cell_size_check = on")
            connection.execute("pragma secure_delete = on")
            connection.execute("pragma trusted_schema = off")
            if read_only:
                connection.execute("pragma query_only = on")
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def prepare_file(path: Path, busy_timeout_s: float) -> int:
    """Make the file and its tables unless they are there; refuse what is not ours, before writing anything.

    Returns the version of its tables. Raises `LogUnavailable`, `LogDamaged`, `SchemaTooNew`, `StorageFull`.
    """
    _make(path)
    connection = connect(path, busy_timeout_s)
    try:
        with sentences(path):
            if _is_new(connection):
                _create(connection, busy_timeout_s)
            version = version_of(connection, path)
            _keep_wal(connection)
            return version
    finally:
        connection.close()


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Never through a descriptor of our own: closing it would drop the locks that SQLite holds for this process, and
        # another process would take itself for the last one and remove the write-ahead log under us.
        with suppress(FileExistsError):
            os.mknod(path, stat.S_IFREG | 0o600)
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not found.st_size and (without_locks := locks_trouble(path.parent)):
            raise without_locks  # said at once: SQLite would wait as for a lock that another process has
    except OSError as error:
        raise LogUnavailable(
            f"the database {path} cannot be opened ({error.strerror}); make {path.parent} writable for this user, or "
            "choose another home with --home"
        ) from error


def _is_new(connection: sqlite3.Connection) -> bool:
    return connection.execute("select 1 from sqlite_master").fetchone() is None


def _create(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    connection.execute(f"pragma page_size = {PAGE_SIZE}")
    _patiently(connection, "pragma journal_mode = wal", busy_timeout_s)
    connection.execute("begin immediate")
    try:
        if _is_new(connection):  # another process may have been faster
            for statement in schema():
                connection.execute(statement)
            connection.execute(SQL["set_schema_version"], {"version": str(SCHEMA_VERSION)})
        connection.execute("commit")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _patiently(connection: sqlite3.Connection, statement: str, busy_timeout_s: float) -> None:
    """SQLite does not wait for the lock that a change of journal mode needs; so we do."""
    pause = threading.Event()
    for _ in range(max(1, int(busy_timeout_s / _BETWEEN_TRIES_S))):
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY:
                raise
        pause.wait(_BETWEEN_TRIES_S)
    connection.execute(statement)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the file's tables. Raises for a file that is not ours, or newer than we are."""
    names = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if "meta" not in names or "events" not in names:
        raise LogUnavailable(
            f"{path} is a database of another program; nothing was written: choose another file with --db"
        )
    found = connection.execute(SQL["schema_version"]).fetchone()
    version = str(found[0]) if found else ""
    if not version.isdecimal() or version == "0":
        raise damaged_file(path, "it does not say which version its tables have")
    if int(version) > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the database {path} has tables of version {version}, this Holdfast knows {SCHEMA_VERSION}; nothing was "
            "written: upgrade Holdfast and try again"
        )
    return int(version)


def _keep_wal(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("pragma journal_mode").fetchone()
    if mode != "wal":
        _patiently(connection, "pragma journal_mode = wal", _BETWEEN_TRIES_S * 20)
