"""The home folder, its privacy, and the workers that serve it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.errors import CannotRunSafely
from holdfast.facts.codec import SCHEMA
from holdfast.locks import is_locked, locked
from holdfast.log.base import Index
from holdfast.log.worker_locks import Worker, is_live
from holdfast.privileges import folder_mode

SERVER = "server"
"""File that the HTTP server of a log locks."""


@dataclass(frozen=True)
class Home:
    """The folder of all durable data: log, worker locks, hands' journals, workspaces, cache."""

    path: Path

    @property
    def database(self) -> Path:
        """The session log."""
        return self.path / "holdfast.db"

    @property
    def workers(self) -> Path:
        """Lock files of running processes."""
        return self.path / "workers"

    @property
    def hands(self) -> Path:
        """Journals of hands, one folder each."""
        return self.path / "hands"

    @property
    def workspaces(self) -> Path:
        """Workspaces that Holdfast created."""
        return self.path / "workspaces"

    @property
    def cache(self) -> Path:
        """Data that can be fetched or built again."""
        return self.path / "cache"

    @property
    def logs(self) -> Path:
        """Output of detached processes."""
        return self.path / "logs"


def open_home(path: Path) -> Home:
    """Open the home at `path`; create it if it does not exist.

    Only its owner can access it. Permissions that an earlier version left open are removed.
    """
    home = Home(path.absolute())
    passable = folder_mode()
    try:
        for folder in (home.path, home.workspaces, home.cache, home.hands):
            _make(folder, passable)
        for folder in (home.workers, home.logs):
            _make(folder, 0o700)
        for name in os.listdir(home.path):
            _close(home.path / name)
    except OSError as error:
        raise CannotRunSafely(
            f"the home folder {home.path} cannot be used ({error.strerror}: {error.filename}); nothing was written. "
            f"Name another one with --home DIR or HOLDFAST_HOME"
        ) from error
    return home


def _make(folder: Path, mode: int) -> None:
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077 & ~mode:
        folder.chmod(mode)


def _close(path: Path) -> None:
    """Remove permissions of other users that an earlier version left on a file or folder in the home."""
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        open_ = 0o077 & ~(folder_mode() if stat.S_ISDIR(status.st_mode) else 0o600)
        if mode & open_ and status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
            path.chmod(mode & ~open_)


def _folder(home: Home, database: Path | None) -> Path:
    """The folder of lock files for a log: several logs may share a home."""
    folder = home.path / "serving"
    if database is None or database.absolute() == home.database:
        return folder
    return folder / hashlib.sha256(str(database.absolute()).encode()).hexdigest()[:16]


def serve(home: Home, worker_id: str, database: Path | None = None) -> Worker:
    """Register this process as a worker of this home, until the returned lock is closed or the process ends.

    `database` is the log that it serves, the home's own when None.
    """
    return Worker.start(_folder(home, database), worker_id, says=str(SCHEMA))


class Serving(msgspec.Struct, frozen=True):
    """The HTTP server of a home: its process, its worker, and the address that users type."""

    pid: int
    worker_id: str
    url: str


@contextmanager
def only_server(home: Home, database: Path | None = None) -> Iterator[Callable[[Serving], None]]:
    """Hold the place of the one HTTP server of a log for the block. Yields a function that announces it.

    Raises `CannotRunSafely`, with the process that has the place.
    """
    folder = _folder(home, database)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(folder / SERVER) as fd:
        if fd is None:
            other = server_of(home, database)
            named = f"process {other.pid} at {other.url}" if other is not None else "another process"
            raise CannotRunSafely(
                f"{named} serves this home already; nothing was started. `holdfast open` prints a link to it"
            )
        os.ftruncate(fd, 0)

        def announce(serving: Serving) -> None:
            os.pwrite(fd, msgspec.json.encode(serving), 0)

        yield announce


def server_of(home: Home, database: Path | None = None) -> Serving | None:
    """The HTTP server that serves this log now; None without one."""
    path = _folder(home, database) / SERVER
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(os.pread(fd, 10_000, 0), type=Serving) if is_locked(fd) else None
    except msgspec.DecodeError:
        return None  # it is about to announce itself
    finally:
        os.close(fd)


def workers(home: Home, database: Path | None = None) -> list[str]:
    """The live workers of this home that can read events of this version."""
    folder = _folder(home, database)
    return [path.stem for path in sorted(folder.glob("*.lock")) if is_live(folder, path.stem) and _reads(path)]


def is_served(home: Home, database: Path | None = None) -> bool:
    """True if a live worker serves this home, so that no process needs to be started."""
    return bool(workers(home, database))


def _reads(path: Path) -> bool:
    try:
        said = path.read_text().strip()
    except OSError:
        return False  # the worker has just ended
    return said.isdecimal() and int(said) >= SCHEMA


def attend(home: Home, session_id: str, worker_id: str, database: Path | None = None) -> Worker:
    """Register this process as attending a session and its descendants, until the returned lock is closed."""
    return Worker.start(_folder(home, database) / "attended" / session_id, worker_id)


async def is_attended(home: Home, index: Index, session_id: str, database: Path | None = None) -> bool:
    """True if a live process attends this session or an ancestor of it."""
    folder, name = _folder(home, database) / "attended", session_id
    while name:
        if any(is_live(folder / name, path.stem) for path in (folder / name).glob("*.lock")):
            return True
        name = (await index.find(name)).parent
    return False
