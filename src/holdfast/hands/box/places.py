"""Places in a workspace that a mount needs: made while hands live, gone with the last that needs them.

A place is `[folder, below, kind]`: `folder` is trusted, `below` a path in it of which commands may have made anything,
so no link in it is ever followed. `kind` is "folder" or "file" for an empty one that is made when it is not there, and
"held" for something that is there and only kept from being cleared away. What is ours is known by its mode and by being
empty: a user's own is never removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

MODES = {"folder": 0o555, "file": 0o444}
"""Of what was made for a mount."""


def hold(place: Sequence[str]) -> int:
    """Make it unless it is there, and share it with other holders until the returned descriptor is closed."""
    folder, below, kind = place
    parent, name = _parent(folder, below)
    try:
        while True:
            if kind != "held":
                _make(parent, name, kind)
            fd = os.open(name, _FILE if kind == "file" else _FOLDER, dir_fd=parent)
            fcntl.flock(fd, fcntl.LOCK_SH)
            try:
                if os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=parent, follow_symlinks=False)):
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)
    finally:
        os.close(parent)


def drop(place: Sequence[str]) -> None:
    """Remove a place that was held, when it is empty and no other holder lives. Never fails."""
    folder, below, kind = place
    fd = -1
    try:
        parent, name = _parent(folder, below)
    except OSError:
        return
    try:
        fd = os.open(name, _FILE if kind == "file" else _FOLDER, dir_fd=parent)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if kind != "held" and is_ours(os.fstat(fd)):
            (os.rmdir if kind == "folder" else os.unlink)(name, dir_fd=parent)
    except OSError:
        pass
    finally:
        if fd >= 0:
            os.close(fd)
        os.close(parent)


def is_ours(found: os.stat_result) -> bool:
    """Whether that may be something that was made for a mount. A folder has to be empty too."""
    if stat.S_ISDIR(found.st_mode):
        return stat.S_IMODE(found.st_mode) == MODES["folder"]
    return found.st_size == 0 and stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == MODES["file"]


def _parent(folder: str, below: str) -> tuple[int, str]:
    """The folder that a place is in, and its name there. Raises `OSError` when a link stands in the way."""
    *middle, name = below.split("/")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in middle:
        try:
            inner = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd, name


def _make(parent: int, name: str, kind: str) -> None:
    try:
        if kind == "folder":
            os.mkdir(name, MODES[kind], dir_fd=parent)
            fd = os.open(name, _FOLDER, dir_fd=parent)  # by its name, a link in its place would be followed
        else:
            fd = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODES[kind], dir_fd=parent
            )
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                os.fchmod(fd, MODES[kind])
        finally:
            os.close(fd)
    except FileExistsError:
        pass
