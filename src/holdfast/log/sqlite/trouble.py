"""SQLite's errors as ours, with the exit status of `holdfast.errors`; and the patience with a failing disk."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.clock import SystemClock
from holdfast.errors import DiskError, HoldfastError, LogDamaged, LogFailed, LogUnavailable, StorageFull
from holdfast.log.workers import NO_LOCKS, no_locks

T = TypeVar("T")

PATIENCE_S = 5.0
"""A disk that fails for longer than this ends the process."""

_REST_S = 0.1
_SCARCE_BYTES = 1024 * 1024
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_OURS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class Outage:
    """How long the disk has failed one thread of a store, and whether the store has given up.

    A store that gave up stays so: a process that goes on without its log would claim what it cannot keep.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self.given_up: LogFailed | None = None
        self._path = path
        self._patience_s = patience_s
        self._since_s: float | None = None
        self._pause = threading.Event()
        self._clock = SystemClock()

    def through(self, job: Callable[[], T], reopen: Callable[[], object]) -> T:
        """Do a job, again on a new connection while the disk fails. Raises `LogFailed` after `patience_s` of that."""
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
        """Raise `LogFailed` when the store has given up."""
        if self.given_up is not None:
            raise self.given_up

    def over(self) -> None:
        """The disk works."""
        self._since_s = None

    def rest(self, error: Exception) -> None:
        """Pause before the next try. Raises `LogFailed` when there have been enough."""
        now_s = self._clock.monotonic_s()
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s >= self._patience_s:
            self.given_up = LogFailed(
                f"the disk under {self._path} has failed for {self._patience_s:g} s ({error.__cause__ or error}); "
                "everything acknowledged is kept, and the last append may or may not be there. This process gives up: "
                "check the disk, then start it again"
            )
            raise self.given_up from error
        self._pause.wait(_REST_S)


class sentences:
    """Raises what SQLite says inside its block as one of our errors."""

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
    """SQLite's primary result code, 0 when the error is of the Python module alone."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def translated(error: sqlite3.Error, path: Path) -> HoldfastError:
    """One of our errors for one of SQLite's."""
    code = code_of(error)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _scarce(path)):
        return StorageFull(
            f"the disk under {path} is full; everything acknowledged is kept and nothing of this was written: free "
            "some space, then `holdfast wake` the session"
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
    if code in _BROKEN or _decoding(error):
        return damaged_file(path, str(error))
    if code == sqlite3.SQLITE_IOERR:
        return locks_trouble(path.parent) or DiskError(
            f"the disk under {path} failed ({error}); everything acknowledged is kept, and the last append may or may "
            "not be there: check the disk, then `holdfast wake` the session"
        )
    if code == sqlite3.SQLITE_ERROR or code == sqlite3.SQLITE_CONSTRAINT:
        return damaged_file(path, str(error))
    return LogUnavailable(f"the database {path} does not work ({error}); what was acknowledged is kept: try again")


def locks_trouble(folder: Path) -> LogUnavailable | None:
    """The error for a folder whose file system has no working file locks; None when a lock there works.

    SQLite calls a lock that cannot be had busy, whatever the reason.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return no_locks(folder, error)
    return None


def damaged_file(path: Path, what: str) -> LogDamaged:
    """The error for a file that is no longer what was written; 0 stands for the file itself."""
    return LogDamaged(
        f"the database {path} is damaged (first bad sequence number unknown, 0): {what}; nothing was written: restore "
        "it from a backup, or copy it elsewhere and try `sqlite3 COPY .recover`",
        seq=0,
    )


def _decoding(error: sqlite3.Error) -> bool:
    """Text that is not UTF-8: the module raises it without a code."""
    return code_of(error) == 0 and "decode" in str(error).lower()


def _scarce(path: Path) -> bool:
    try:
        room = os.statvfs(path.parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _SCARCE_BYTES
