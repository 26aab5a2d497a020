"""Where Holdfast keeps its things, and how it makes sure of their privacy."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import CannotRunSafely


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

    As root, what a dropped user id must reach can be passed through, never listed.
    """
    home = Home(path.absolute())
    passable = 0o711 if os.geteuid() == 0 else 0o700
    try:
        for folder in (home.path, home.workspaces, home.cache, home.hands):
            _make(folder, passable)
        for folder in (home.workers, home.logs):
            _make(folder, 0o700)
    except OSError as error:
        raise CannotRunSafely(
            f"the home folder {home.path} cannot be used ({error.strerror}: {error.filename}); nothing was written. "
            f"Name another one with --home DIR or HOLDFAST_HOME"
        ) from error
    return home


def _make(folder: Path, mode: int) -> None:
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o022:
        folder.chmod(mode)
