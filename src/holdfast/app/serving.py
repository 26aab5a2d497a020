"""Which workers serve a home: each holds a lock file that the kernel gives up with it (S5, S27).

The file says up to which schema version of events its worker can read. Older programs left it empty.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from holdfast.app.home import Home
from holdfast.facts.codec import SCHEMA
from holdfast.log.base import Index
from holdfast.log.worker_locks import Worker, is_live


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
    return Worker.start(_folder(home, database), worker_id, says=str(SCHEMA))


def workers(home: Home, database: Path | None = None) -> list[str]:
    """The living workers that serve this home now and read what this program writes."""
    folder = _folder(home, database)
    return [path.stem for path in sorted(folder.glob("*.lock")) if is_live(folder, path.stem) and _reads(path)]


def is_served(home: Home, database: Path | None = None) -> bool:
    """Whether a living worker will take what this process writes: nobody else needs to be started for it."""
    return bool(workers(home, database))


def _reads(path: Path) -> bool:
    try:
        said = path.read_text().strip()
    except OSError:
        return False  # it has just gone
    return said.isdecimal() and int(said) >= SCHEMA


def attend(home: Home, session_id: str, worker_id: str, database: Path | None = None) -> Worker:
    """Say that this process stays with a session and all below it, until the returned lock is closed."""
    return Worker.start(_folder(home, database) / "attended" / session_id, worker_id)


async def is_attended(home: Home, index: Index, session_id: str, database: Path | None = None) -> bool:
    """Whether a living process stays with this session, or with one above it."""
    folder, name = _folder(home, database) / "attended", session_id
    while name:
        if any(is_live(folder / name, path.stem) for path in (folder / name).glob("*.lock")):
            return True
        name = (await index.find(name)).parent
    return False
