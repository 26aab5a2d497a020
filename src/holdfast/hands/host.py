"""Identity of this machine and of its boot, and the folder for short-lived sockets."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from holdfast.errors import CannotRunSafely

_MACHINE_ID = Path("/etc/machine-id")


def host_id() -> str:
    """Return 16 hexadecimal characters that stay the same on one machine and reveal nothing about it."""
    try:
        name = _MACHINE_ID.read_text().strip()
    except OSError:
        name = ""
    name = name or os.uname().nodename
    return hashlib.sha256(b"holdfast host " + name.encode()).hexdigest()[:16]


def run_directory(uid: int) -> Path:
    """Return our private folder for sockets, with a path short enough for them. Creates it if absent.

    `/run/holdfast` as root, else under `/run/user/UID`, else `/tmp/holdfast-UID`. Raises `CannotRunSafely` if another
    user made a folder with that name.
    """
    path = _run_path(uid)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise CannotRunSafely(f"{path} for the sockets of the hands cannot be made: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise CannotRunSafely(
            f"{path} is for the sockets of the hands, and it is not a folder that only uid {uid} can use; "
            f"nothing was started: remove it (`rm -rf {path}`) and try again"
        )
    return path


def _run_path(uid: int) -> Path:
    if uid == 0:
        return Path("/run/holdfast")
    user = Path(f"/run/user/{uid}")
    if user.is_dir() and user.stat().st_uid == uid:
        return user / "holdfast"
    return Path(f"/tmp/holdfast-{uid}")
