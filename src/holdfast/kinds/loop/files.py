"""Files of a loop's workspace, read and written by the harness as data: no link is followed, nothing is run (S25)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import CannotRunSafely

BYTES_MAX = 1 << 20
"""A larger file is not taken for one of the loop's."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

CACHES = frozenset(
    {".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", "venv", ".tox"}
)
"""Folders that change with every run of a test; what happens there is no progress."""

_HASHED_MAX = 4 << 20
_ENTRIES_MAX = 50_000


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """The folder itself, so that nothing that happens to its path leads elsewhere."""
    try:
        fd = os.open(folder, _FOLDER)
    except OSError as error:
        raise CannotRunSafely(
            f"the workspace {folder} cannot be opened ({error.strerror}); nothing was lost: put it back, then wake the "
            "session"
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def read(folder: int, name: str) -> bytes | None:
    """A plain file of that folder; None when there is none, or when it is something else or too large."""
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > BYTES_MAX:
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as stream:
        data = stream.read(BYTES_MAX + 1)
    return data if len(data) <= BYTES_MAX else None


def write(folder: int, name: str, data: bytes) -> None:
    """Put a whole file in the place of whatever has that name. It belongs to the folder's owner, as its work does."""
    aside = f".{name}.holdfast"
    above = os.fstat(folder)
    mode = 0o644
    with contextlib.suppress(OSError):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            mode = stat.S_IMODE(found.st_mode) & 0o666 | stat.S_IRUSR | stat.S_IWUSR
        elif stat.S_ISDIR(found.st_mode):
            _out_of_the_way(folder, name)
    try:
        _remove(folder, aside)
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            if os.geteuid() == 0:
                os.fchown(stream.fileno(), above.st_uid, above.st_gid)
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError as error:
        raise CannotRunSafely(
            f"{name} cannot be written in the workspace ({error.strerror}); the log has what belongs into it: set this "
            "right, then wake the session"
        ) from error


def _out_of_the_way(folder: int, name: str) -> None:
    """A folder that stands where a file belongs keeps what is in it, under another name."""
    for number in range(1, 100):
        try:
            os.stat(f"{name}.moved-{number}", dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(name, f"{name}.moved-{number}", src_dir_fd=folder, dst_dir_fd=folder)
            return


def _remove(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        _out_of_the_way(folder, name)


def tree_digest(folder: int, without: frozenset[str]) -> str:
    """SHA-256 hex of what is in the folder: names, modes, contents. `without` are names at its top that do not count.

    Of a very large file its size and time stand for its content, and beyond many thousand entries only names count.
    """
    digest = hashlib.sha256()
    entries = 0
    for path, folders, files, fd in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        folders[:] = sorted(name for name in folders if name not in CACHES)
        for name in sorted(files):
            if path == "." and (name in without or name.endswith(".holdfast")):
                continue
            entries += 1
            digest.update(f"{path}/{name}".encode("utf-8", "surrogateescape") + b"\0")
            if entries <= _ENTRIES_MAX:
                digest.update(_mark(fd, name))
    return digest.hexdigest()


def _mark(folder: int, name: str) -> bytes:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return b"link " + os.readlink(os.fsencode(name), dir_fd=folder)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _HASHED_MAX:
            return f"{found.st_mode} {found.st_size} {found.st_mtime_ns}".encode()
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return b"gone"
    with os.fdopen(fd, "rb") as stream:
        return f"{found.st_mode} ".encode() + hashlib.sha256(stream.read(_HASHED_MAX)).digest()
