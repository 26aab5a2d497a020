"""A secret in a file: read only where nobody else could have read it or put it there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.vault.base import Secret
from holdfast.vault.values import BYTES_MAX, checked


def path_of(place: str, home: str) -> Path:
    """The file that a reference names; `home` stands for `~`. It is not absolute when nobody knows the home."""
    return Path(home) / place[2:] if place.startswith("~/") else Path(place)


def read_file(place: str, home: str) -> Secret | str:
    """The secret in the file, or why it is not taken and what to type. `home` stands for `~`."""
    path = path_of(place, home)
    if not path.is_absolute():
        return f"nobody knows where ~ leads to for {place}; name the file by its whole path"
    data = _bytes(path)
    if isinstance(data, str):
        return data
    found = checked(data)
    if isinstance(found, str):
        return f"the file {path} cannot be used: {found}; put the secret alone into it"
    return found


def _bytes(path: Path) -> bytes | str:
    try:
        folder = Path(os.path.realpath(path.parent))
        problem = _open_to_others(folder)
        if problem:
            return problem
        # No link is followed, and nothing waits for somebody to write into a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(folder / path.name, flags)
    except OSError as error:
        if (path.parent / path.name).is_symlink():
            return f"{path} is a symbolic link, and those are not followed; name the file that it leads to"
        return (
            f"the file {path} cannot be read: {error.strerror}; make it, with mode 600: install -m 600 /dev/null {path}"
        )
    try:
        status = os.fstat(descriptor)
        problem = _file_problem(path, status)
        return problem or os.read(descriptor, BYTES_MAX + 3)
    except OSError as error:
        return f"the file {path} cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)


def _file_problem(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is no ordinary file; name a file that holds the secret alone"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user, who could change it; copy it: install -m 600 {path} FILE-OF-YOURS"
    if status.st_mode & 0o077:
        return f"others on this machine can read {path}; type: chmod 600 {path}"
    return ""


def _open_to_others(folder: Path) -> str:
    """Why somebody else could put another file there; empty when nobody could."""
    for each in (folder, *folder.parents):
        status = each.stat()
        ours = status.st_uid in (os.geteuid(), 0)
        kept = status.st_mode & stat.S_ISVTX  # there only its owner moves a file away
        if not ours or (status.st_mode & 0o022 and not kept):
            return f"the folder {each} belongs to others or can be written by them; type: chmod go-w {each}"
    return ""
