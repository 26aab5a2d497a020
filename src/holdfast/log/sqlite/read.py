"""Reading the database file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from holdfast.log.sql.read import FILTERS, Reader
from holdfast.log.sqlite.connect import SQL, SqliteDatabase, code_of, damaged_file


class SqliteReader(Reader):
    """A reader on one connection, for one verb."""

    __slots__ = ("_connection", "_path")

    filters: ClassVar = FILTERS | {
        "ids": "session_id in (select value from json_each(:ids))",
        "roots": "root in (select value from json_each(:roots))",
        # Newlines keep words from matching across two fields. `json_each` has a column `key` of its own.
        "words": "not exists (select 1 from json_each(:words) where instr(lower(sessions.goal || char(10) || "
        "sessions.key || char(10) || session_id || char(10) || name || char(10) || model), value) = 0)",
    }

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(SqliteDatabase(connection))
        self._connection = connection
        self._path = path

    def session_ids(self) -> list[str]:
        """Return the ids of all sessions. Raises `LogDamaged` for a value that is not text."""
        found = super().session_ids()
        if not all(isinstance(name, str) for name in found):
            raise damaged_file(self._path, "a row has no session id")
        return found

    def check_file(self) -> list[str]:
        """Return the problems found by SQLite's integrity check."""
        return [line for (line,) in self._connection.execute("pragma integrity_check(10)") if line != "ok"]

    @contextmanager
    def _consistent(self) -> Iterator[None]:
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("begin")
        try:
            yield
        finally:
            try:
                self._connection.execute("rollback")
            except sqlite3.Error as error:
                if code_of(error) == sqlite3.SQLITE_IOERR:
                    raise
                raise damaged_file(self._path, str(error)) from error


class FileProbe:
    """A connection that can tell if another one committed. It reads shared memory, not the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seen: int | None = None

    def moved(self) -> bool:
        """Return True if another connection committed since the last call, and for the first one."""
        before = self._seen
        (self._seen,) = self._connection.execute("pragma data_version").fetchone()
        return self._seen != before

    def head(self, session_id: str) -> int | None:
        """Return a session's head."""
        found = self._connection.execute(SQL["session_head"], {"session_id": session_id}).fetchone()
        return int(found[0]) if found is not None else None

    def wait(self, stop: threading.Event, seconds: float) -> list[str]:
        """Block for that time, or until `stop` is set."""
        stop.wait(seconds)
        return []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
