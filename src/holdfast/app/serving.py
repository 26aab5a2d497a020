"""Whether a worker serves a home: it holds a lock file that the kernel gives up with it (S5, S27)."""

from __future__ import annotations

from pathlib import Path

from holdfast.app.home import Home
from holdfast.log.workers import Worker, is_live


def _folder(home: Home) -> Path:
    return home.path / "serving"


def serve(home: Home, worker_id: str) -> Worker:
    """Say that this process runs what is due in this home, until the returned lock is closed or the process ends."""
    return Worker.start(_folder(home), worker_id)


def is_served(home: Home) -> bool:
    """Whether a living process serves this home now: what is due needs nobody else to start it."""
    return any(is_live(_folder(home), path.stem) for path in _folder(home).glob("*.lock"))
