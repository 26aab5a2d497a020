"""Where Holdfast keeps its things, and how it makes sure of their privacy."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import CannotRunSafely
from holdfast.privileges import folder_mode


@dataclass(frozen=True)
class Home:
    """The folder of everything that lasts: log, worker locks, hands' journals, workspaces, cache."""

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
        """Journals of hands, a folder each."""
        return self.path / "hands"

    @property
    def workspaces(self) -> Path:
        """Workspaces that Holdfast made itself."""
        return self.path / "workspaces"

    @property
    def cache(self) -> Path:
        """What can be fetched or built again."""
        return self.path / "cache"

    @property
    def logs(self) -> Path:
        """Output of detached processes."""
        return self.path / "logs"


def open_home(path: Path) -> Home:
    """The home at `path`, made if need be.

    All of it is for its owner alone. One that an earlier version left open is closed.
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
    """Take from others what an earlier version let them do with something right in the home."""
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        open_ = 0o077 & ~(folder_mode() if stat.S_ISDIR(status.st_mode) else 0o600)
        if mode & open_ and status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
            path.chmod(mode & ~open_)
