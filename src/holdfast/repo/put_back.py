"""Bring a folder that is in use to an earlier snapshot: only what differs is touched, and no link is followed.

What no snapshot holds, such as a `.git` folder or a socket, stays where it is.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import SnapshotFailed
from holdfast.repo.base import shown

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = b".holdfast-part"
_CHUNK = 1 << 20


def put_back(folder: Path, now: Path, then: Path) -> None:
    """Change `folder`, whose snapshot is restored in `now`, to what is restored in `then`.

    `then` loses its files. Blocks. Safe to repeat after a kill, with new copies. Raises `SnapshotFailed` if something
    is in the way; what comes before it in the order of names is put back then.
    """
    try:
        with _opened(None, os.fsencode(folder)) as live, _opened(None, os.fsencode(now)) as before:
            with _opened(None, os.fsencode(then)) as after:
                _folder(live, before, after, b"")
    except OSError as error:
        raise SnapshotFailed(
            f"the files of {folder} could not all be restored ({error.strerror or error}): some are as before, some as "
            "wanted, and the state before is kept; repeat the command"
        ) from None


def _folder(live: int, before: int | None, after: int | None, path: bytes) -> None:
    """Handle one folder. `before` and `after` are None where it does not exist."""
    names = {os.fsencode(name) for fd in (before, after) if fd is not None for name in os.listdir(fd)}
    for name in sorted(names):
        where = os.path.join(path, name)
        old, new = _found(before, name), _found(after, name)
        if old is not None and stat.S_ISDIR(old.st_mode) and new is not None and stat.S_ISDIR(new.st_mode):
            with _opened(live, name) as below, _opened(before, name) as one, _opened(after, name) as other:
                _folder(below, one, other, where)
                if old.st_mode != new.st_mode:
                    os.fchmod(below, stat.S_IMODE(new.st_mode))
        elif old is None or new is None or not _same(before, after, name, old, new):
            if old is not None:
                _remove(live, before, name, old, where)
            if new is not None:
                _place(live, after, name, new, where)


def _remove(live: int, before: int | None, name: bytes, old: os.stat_result, where: bytes) -> None:
    present = _found(live, name)
    if present is None:
        return
    if not stat.S_ISDIR(old.st_mode):
        if not stat.S_ISDIR(present.st_mode):
            os.unlink(name, dir_fd=live)
        return
    with _opened(live, name) as below, _opened(before, name) as one:
        _folder(below, one, None, where)
    try:
        os.rmdir(name, dir_fd=live)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _place(live: int, after: int | None, name: bytes, new: os.stat_result, where: bytes) -> None:
    present = _found(live, name)
    if stat.S_ISDIR(new.st_mode):
        if present is None:
            os.mkdir(name, 0o700, dir_fd=live)
        with _opened(live, name) as below, _opened(after, name) as other:
            _folder(below, None, other, where)
            os.fchown(below, new.st_uid, new.st_gid)
            os.fchmod(below, stat.S_IMODE(new.st_mode))
        return
    if present is not None and stat.S_ISDIR(present.st_mode):
        raise SnapshotFailed(
            f"{shown(where)} was a file and is now a folder with files that no snapshot has, such as .git; it was left "
            "as it is: move it away, and repeat the command"
        )
    try:
        os.rename(name, name, src_dir_fd=after, dst_dir_fd=live)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(live, after, name, new)


def _copy(live: int, after: int | None, name: bytes, new: os.stat_result) -> None:
    """Copy a file or link from another file system, and rename it into place."""
    if _found(live, _PART) is not None:
        os.unlink(_PART, dir_fd=live)
    if stat.S_ISLNK(new.st_mode):
        os.symlink(os.readlink(name, dir_fd=after), _PART, dir_fd=live)
        os.chown(_PART, new.st_uid, new.st_gid, dir_fd=live, follow_symlinks=False)
    else:
        source, target = os.open(name, _FILE, dir_fd=after), os.open(_PART, _NEW, 0o600, dir_fd=live)
        try:
            while chunk := os.read(source, _CHUNK):
                with open(target, "wb", closefd=False) as file:
                    file.write(chunk)
            os.fchown(target, new.st_uid, new.st_gid)
            os.fchmod(target, stat.S_IMODE(new.st_mode))
        finally:
            os.close(source)
            os.close(target)
    os.rename(_PART, name, src_dir_fd=live, dst_dir_fd=live)


def _same(before: int | None, after: int | None, name: bytes, old: os.stat_result, new: os.stat_result) -> bool:
    if (old.st_mode, old.st_size) != (new.st_mode, new.st_size):
        return False
    if stat.S_ISLNK(old.st_mode):
        return os.readlink(name, dir_fd=before) == os.readlink(name, dir_fd=after)
    if not stat.S_ISREG(old.st_mode):
        return False
    one, other = os.open(name, _FILE, dir_fd=before), os.open(name, _FILE, dir_fd=after)
    try:
        while (chunk := os.read(one, _CHUNK)) == os.read(other, _CHUNK):
            if not chunk:
                return True
        return False
    finally:
        os.close(one)
        os.close(other)


def _found(folder: int | None, name: bytes) -> os.stat_result | None:
    if folder is None:
        return None
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextmanager
def _opened(parent: int | None, name: bytes) -> Iterator[int]:
    fd = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)
