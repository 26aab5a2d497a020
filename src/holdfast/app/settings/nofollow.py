"""Files of a repository, opened component by component: no symbolic link is followed below the folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for a folder that is only passed through."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

BYTES_MAX = 4 << 20
"""A larger settings, prompt, rules, or contract file is refused."""


def read_beneath(folder: Path, name: str, limit: int = BYTES_MAX) -> bytes:
    """The bytes of a regular file below `folder`. Raises `OSError`: `ELOOP` for a link, `EFBIG` beyond the limit."""
    path = PurePosixPath(name)
    with _opened(folder, path.parent) as above:
        fd = _open(path.name, _FILE, above)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(folder / name))
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", str(folder / name))
    return data


def list_beneath(folder: Path, name: str = ".") -> list[str]:
    """The sorted names in a folder below `folder`. Raises `OSError`."""
    with _opened(folder, PurePosixPath(name)) as found:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=found)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


@contextmanager
def _opened(folder: Path, inside: PurePosixPath) -> Iterator[int]:
    if inside.is_absolute() or ".." in inside.parts:
        raise OSError(errno.EXDEV, "outside the folder", str(inside))
    fd = os.open(folder, FOLDER & ~os.O_NOFOLLOW)
    try:
        for name in inside.parts:
            below = _open(name, FOLDER, fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def _open(name: str, flags: int, above: int) -> int:
    """Open one component. A link to a folder fails with `ENOTDIR` on its own; say that it is a link."""
    try:
        return os.open(name, flags, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(name, above):
            raise OSError(errno.ELOOP, "a symbolic link is not followed here", name) from None
        raise


def _is_link(name: str, above: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
