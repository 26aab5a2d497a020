"""Taking away what dead proxies left in their doors: each has a copy of all certificates that the machine trusts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Set
from pathlib import Path

from holdfast.egress.files import is_locked, places
from holdfast.errors import EgressUnavailable, UsageError


def sweep_doors(folder: Path, at_work: Set[str] | None) -> int:
    """Empty the doors below `folder` whose proxy is dead and whose session has no hands. Returns how many.

    `at_work` are the sessions with living hands, which see the folder itself; with None only files go.
    """
    swept = 0
    with contextlib.suppress(OSError):
        for door in sorted((folder / "doors").iterdir()):
            if door.is_symlink() or (at_work is not None and door.name in at_work):
                continue
            with contextlib.suppress(OSError, EgressUnavailable, UsageError):
                swept += _swept(folder, door, whole=at_work is not None)
    return swept


def _swept(folder: Path, door: Path, *, whole: bool) -> bool:
    found = places(folder, door.name)
    found.own.mkdir(mode=0o700, exist_ok=True)
    turn = os.open(found.own / "turn", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody starts one meanwhile
        if is_locked(found.lock):
            return False
        if whole:
            shutil.rmtree(door)
            return True
        names = [path for path in door.iterdir() if not path.is_dir()]
        for path in names:
            path.unlink()
        return bool(names)
    finally:
        os.close(turn)
