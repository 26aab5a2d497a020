"""SQLite's errors as ours: sentences, with the exit status of `holdfast.errors`."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from holdfast.errors import HoldfastError, LogDamaged, LogUnavailable, StorageFull

_SCARCE_BYTES = 1024 * 1024
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_OURS = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


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
        return LogUnavailable(
            f"the disk under {path} failed ({error}); what was acknowledged before is kept, the last append may or may "
            "not be: this process writes no more, check the disk, then `holdfast wake` the session"
        )
    if code == sqlite3.SQLITE_ERROR or code == sqlite3.SQLITE_CONSTRAINT:
        return damaged_file(path, str(error))
    return LogUnavailable(f"the database {path} does not work ({error}); what was acknowledged is kept: try again")


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
