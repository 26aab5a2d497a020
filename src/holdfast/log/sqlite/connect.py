"""Connections to the database file: settings, tables, statements, and the translation of SQLite errors."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast.clock import SystemClock
from holdfast.errors import DiskError, HoldfastError, LogDamaged, LogFailed, LogUnavailable, SchemaTooNew, StorageFull
from holdfast.log.sql.statements import SCHEMA_VERSION, queries, schema
from holdfast.log.worker_locks import NO_LOCKS, no_locks

T = TypeVar("T")

PATIENCE_S = 5.0
"""Seconds of disk failure after which a store gives up."""

_REST_S = 0.1
_SCARCE_BYTES = 1024 * 1024
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_OURS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class Outage:
    """Disk failures seen by one thread of a store.

    Giving up is final: a process without its log cannot keep what it acknowledges.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self.given_up: LogFailed | None = None
        self._path = path
        self._patience_s = patience_s
        self._since_s: float | None = None
        self._pause = threading.Event()
        self._clock = SystemClock()

    def through(self, job: Callable[[], T], reopen: Callable[[], object]) -> T:
        """Run a job, and repeat it on a new connection while the disk fails. Raises `LogFailed` after `patience_s`."""
        while True:
            self.check()
            try:
                result = job()
            except DiskError as error:
                self.rest(error)
                reopen()
            else:
                self.over()
                return result

    def check(self) -> None:
        """Raise `LogFailed` if the store has given up."""
        if self.given_up is not None:
            raise self.given_up

    def over(self) -> None:
        """Record that the disk works again."""
        self._since_s = None

    def rest(self, error: Exception) -> None:
        """Pause before the next try. Raises `LogFailed` after `patience_s`."""
        now_s = self._clock.monotonic_s()
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s >= self._patience_s:
            self.given_up = LogFailed(
                f"the disk under {self._path} has failed for {self._patience_s:g} s ({error.__cause__ or error}); "
                "all acknowledged events are kept, and the last append may or may not be stored. This process gives "
                "up: check the disk, then restart it"
            )
            raise self.given_up from error
        self._pause.wait(_REST_S)


class sentences:
    """Context manager that translates the SQLite errors of its block."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise translated(error, self._path) from error
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes a damaged schema in its own message
            raise damaged_file(self._path, "it holds text that is not UTF-8") from error


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, 0 for an error of the Python module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translated(error: sqlite3.Error, path: Path) -> HoldfastError:
    """Translate a SQLite error."""
    code = code_of(error)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _scarce(path)):
        return StorageFull(
            f"the disk under {path} is full; all acknowledged events are kept and nothing new was written: free "
            "some space, then type the command again, or `holdfast wake` the session"
        )
    if code in _LOCKED:
        without_locks = locks_trouble(path.parent)
        if without_locks is not None:
            return without_locks
        return LogUnavailable(
            f"another program has kept the database {path} locked; nothing was written: end that program (a database "
            "browser or a backup tool), then try again"
        )
    if code in _NOT_OURS:
        return LogUnavailable(
            f"the database {path} cannot be opened or written ({error}); check that it and its folder belong to this "
            "user, or choose another home with --home"
        )
    undecodable = code == 0 and "decode" in str(error).lower()  # the module reports such text without a code
    if code in _BROKEN or undecodable:
        return damaged_file(path, str(error))
    if code == sqlite3.SQLITE_IOERR:
        return locks_trouble(path.parent) or DiskError(
            f"the disk under {path} failed ({error}); all acknowledged events are kept, and the last append may or may "
            "not be stored: check the disk, then `holdfast wake` the session"
        )
    if code == sqlite3.SQLITE_ERROR or code == sqlite3.SQLITE_CONSTRAINT:
        return damaged_file(path, str(error))
    return LogUnavailable(f"the database {path} failed ({error}); all acknowledged events are kept: try again")


def locks_trouble(folder: Path) -> LogUnavailable | None:
    """Return the error for a folder without working file locks, or None if locks work.

    SQLite reports any lock failure as busy.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return no_locks(folder, error)
    return None


def damaged_file(path: Path, what: str) -> LogDamaged:
    """Return the error for a damaged database file; `seq` 0 means the file itself."""
    return LogDamaged(
        f"the database {path} is damaged (first bad sequence number unknown, 0): {what}; nothing was written: restore "
        "it from a backup, or copy it elsewhere and try `sqlite3 COPY .recover`",
        seq=0,
    )


def _scarce(path: Path) -> bool:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _SCARCE_BYTES


SQL = queries("queries.sql", "sqlite.sql")


class SqliteDatabase:
    """A connection that runs statements by name."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, name: str, values: Any = (), conditions: str = "") -> sqlite3.Cursor:
        """Run a statement; see `Database.run`."""
        statement = SQL[name].format(conditions=conditions) if conditions else SQL[name]
        return self._connection.execute(statement, values)

    def change(self, name: str, values: Any) -> bool:
        """Run a statement; return False if it changed no row."""
        return self._connection.execute(SQL[name], values).rowcount == 1

    def insert_event(self, values: tuple[object, ...]) -> None:
        """Insert an event."""
        self._connection.execute(SQL["insert_event"], values)


PAGE_SIZE = 4096
"""Bytes per page. A commit writes whole pages: larger ones save disk space but cost every append more."""

CACHE_KB = 1000
"""Kibibytes of pages that a connection keeps. The operating system keeps the file's pages once for all connections, so
larger caches save little time and cost each worker memory."""

_BETWEEN_TRIES_S = 0.05


def connect(path: Path, busy_timeout_s: float, *, read_only: bool = False) -> sqlite3.Connection:
    """Connect to an existing file with the log's settings. SQLite errors are translated."""
    with sentences(path):
        connection = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
        try:
            connection.execute("pragma synchronous = full")
            connection.execute("pragma cell_size_check = on")
            connection.execute("pragma secure_delete = on")
            connection.execute("pragma trusted_schema = off")
            connection.execute(f"pragma cache_size = -{CACHE_KB}")
            if read_only:
                connection.execute("pragma query_only = on")
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def prepare_file(path: Path, busy_timeout_s: float) -> int:
    """Create the file and its tables if needed; refuse a foreign file before writing anything.

    Returns the version of its tables. Raises `LogUnavailable`, `LogDamaged`, `SchemaTooNew`, `StorageFull`.
    """
    _make(path)
    connection = connect(path, busy_timeout_s)
    try:
        with sentences(path):
            if _is_new(connection):
                _create(connection, busy_timeout_s)
            version = version_of(connection, path)
            (mode,) = connection.execute("pragma journal_mode").fetchone()
            if mode != "wal":
                _patiently(connection, "pragma journal_mode = wal", _BETWEEN_TRIES_S * 20)
            return version
    finally:
        connection.close()


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Do not open the file here: closing it would drop the locks that SQLite holds for this process, and another
        # process could take itself for the last one and remove the write-ahead log.
        with suppress(FileExistsError):
            os.mknod(path, stat.S_IFREG | 0o600)
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if not found.st_size and (without_locks := locks_trouble(path.parent)):
            raise without_locks  # SQLite would wait as if another process held the lock
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
        if _is_new(connection):  # another process may have created the tables
            for statement in schema():
                connection.execute(statement)
            connection.execute(SQL["set_schema_version"], {"version": str(SCHEMA_VERSION)})
        connection.execute("commit")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _patiently(connection: sqlite3.Connection, statement: str, busy_timeout_s: float) -> None:
    """Retry a statement while the file is locked: SQLite does not wait for a change of journal mode."""
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
    """Return the version of the file's tables. Raises for a foreign file and for newer tables."""
    names = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if "meta" not in names or "events" not in names:
        raise LogUnavailable(
            f"{path} is a database of another program; nothing was written: choose another file with --db"
        )
    found = connection.execute(SQL["schema_version"]).fetchone()
    version = str(found[0]) if found else ""
    if not version.isdecimal() or version == "0":
        raise damaged_file(path, "the version of its tables is missing")
    if int(version) > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the database {path} has tables of version {version}, this Holdfast supports {SCHEMA_VERSION}; nothing "
            "was written: upgrade Holdfast and try again"
        )
    return int(version)
