"""Whether a worker serves a home: it holds a lock file that the kernel gives up with it (S5, S27)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from holdfast.app.home import Home
from holdfast.log.workers import Worker, is_live


def _folder(home: Home, database: Path | None) -> Path:
    """One for each log: a home may be used with several."""
    folder = home.path / "serving"
    if database is None or database.absolute() == home.database:
        return folder
    return folder / hashlib.sha256(str(database.absolute()).encode()).hexdigest()[:16]


def serve(home: Home, worker_id: str, database: Path | None = None) -> Worker:
    """Say that this process runs what is due in this home, until the returned lock is closed or the process ends.

    `database` is the log that it serves, the home's own when None.
    """
    return Worker.start(_folder(home, database), worker_id)


def is_served(home: Home, database: Path | None = None) -> bool:
    """Whether a living process serves this home now: what is due needs nobody else to start it."""
    folder = _folder(home, database)
    return any(is_live(folder, path.stem) for path in folder.glob("*.lock"))
