"""Folders of files to git trees and back, without git and without trust.

Every step goes from an open folder to a name in it and never through a link. An agent may be changing the files that
are read; the files that are written come from a tree that an agent made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from holdfast.errors import RepositoryUnfit, StorageFull
from holdfast.repo.base import Owner, shown
from holdfast.repo.objects import CHUNK, Changing
from holdfast.repo.plumbing.ignore import Ignoring
from holdfast.repo.plumbing.objects import (
    LINK,
    MAX_FILES,
    PROGRAM,
    SUBMODULE,
    Entries,
    Entry,
    Pack,
    is_git_name,
    is_plain_path,
    kept_mode,
)

MAX_DEPTH = 200
NAMED_LEFT_OUT = 20
MAX_NEW_BYTES = 2 << 30
"""Maximum bytes that one commit may add, before compression."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RETRIES = 3


class Reading:
    """One reading of a folder into a pack. `parent` is the tree that it began as."""

    def __init__(self, pack: Pack, parent: Entries, ignoring: Ignoring, user: Owner | None) -> None:
        self._pack = pack
        self._parent = parent
        self._folders = {folder for path in parent for folder in _above(path)}
        self._submodules = {path for path, entry in parent.items() if entry.mode == SUBMODULE}
        self._ignoring = ignoring
        self._user = user
        self._device = 0
        self._seen = 0
        self.entries: dict[bytes, Entry] = {}
        self.left_out: list[str] = []

    def run(self, folder: Path) -> dict[bytes, Entry]:
        """Return everything to commit from the folder. Its own path may lead through links: we named it.

        A submodule stays as it was, and the files in its place are ignored. Raises `RepositoryUnfit` for a folder that
        cannot be read, or is too large.
        """
        try:
            root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise RepositoryUnfit(
                f"the folder {folder} cannot be opened: {error.strerror}; nothing was committed: see that it is there "
                "and readable"
            ) from None
        try:
            found = os.fstat(root)
            self._device = found.st_dev
            if self._user is None and os.geteuid() == 0 and found.st_uid != 0:
                self._user = Owner(found.st_uid, found.st_gid)
            self._folder(root, b"", ignored=False)
        finally:
            os.close(root)
        for path in self._submodules:
            if not any(above in self.entries for above in _above(path)):
                self.entries[path] = self._parent[path]
        return self.entries

    def _folder(self, fd: int, base: bytes, *, ignored: bool) -> None:
        if base.count(b"/") > MAX_DEPTH:
            raise RepositoryUnfit(
                f"folders are nested too deep to be committed ({shown(base)[:200]}…); nothing was committed: remove "
                "what nests so deep"
            )
        for name in sorted(os.fsencode(each) for each in os.listdir(fd)):
            self._seen += 1
            if self._seen > MAX_FILES:
                raise RepositoryUnfit(
                    f"the folder has more than {MAX_FILES:,} files, too many to be committed; nothing was committed: "
                    "remove what is not needed"
                )
            path = base + name
            if is_git_name(name) or path in self._submodules:
                if name != b".git" and path not in self._submodules and len(self.left_out) < NAMED_LEFT_OUT:
                    self.left_out.append(shown(path))
                continue
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except OSError:
                continue  # gone, or cannot be examined
            self._one(fd, name, path, found, ignored=ignored)

    def _one(self, fd: int, name: bytes, path: bytes, found: os.stat_result, *, ignored: bool) -> None:
        if stat.S_ISDIR(found.st_mode):
            out = ignored or self._ignoring.leaves_out(path, folder=True)
            if not out or path in self._folders:
                self._descend(fd, name, path, ignored=out)
            return
        if path not in self._parent and (ignored or self._ignoring.leaves_out(path, folder=False)):
            return
        if stat.S_ISLNK(found.st_mode):
            try:
                target = os.readlink(name, dir_fd=fd)
            except OSError:
                return
            self.entries[path] = Entry(LINK, self._pack.add("blob", target))
        elif stat.S_ISREG(found.st_mode):
            self._file(fd, name, path)

    def _descend(self, fd: int, name: bytes, path: bytes, *, ignored: bool) -> None:
        try:
            below = os.open(name, _FOLDER, dir_fd=fd)
        except OSError:
            return  # unreadable, or replaced by now
        try:
            found = os.fstat(below)
            if found.st_dev == self._device and self._may_read(found):
                self._folder(below, path + b"/", ignored=ignored)
        finally:
            os.close(below)

    def _file(self, folder: int, name: bytes, path: bytes) -> None:
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except OSError:
            return
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and self._may_read(found):
                blob = self._blob(fd, path)
                self.entries[path] = Entry(kept_mode(found), blob)
        finally:
            os.close(fd)
        if self._pack.bytes > MAX_NEW_BYTES:
            raise RepositoryUnfit(
                f"the folder adds more than {MAX_NEW_BYTES:,} bytes, too many for one commit; nothing was committed: "
                "remove what is not needed, or name it in .gitignore of the base"
            )

    def _blob(self, fd: int, path: bytes) -> str:
        for _ in range(_RETRIES):
            size = os.fstat(fd).st_size
            try:
                if size <= CHUNK:
                    return self._pack.add("blob", _whole(fd, size))
                return self._pack.add_file(fd, size)
            except Changing:
                os.lseek(fd, 0, os.SEEK_SET)
        raise RepositoryUnfit(
            f"{shown(path)} changed each time it was read; nothing was committed: end what writes to it, then try again"
        )

    def _may_read(self, found: os.stat_result) -> bool:
        """True if the hands' user could read the entry; a commit holds nothing else."""
        if self._user is None or found.st_uid == self._user.uid:
            return True
        needed = 0o5 if stat.S_ISDIR(found.st_mode) else 0o4
        if found.st_gid == self._user.gid:
            return found.st_mode >> 3 & needed == needed
        return found.st_mode & needed == needed


def _whole(fd: int, size: int) -> bytes:
    parts, left = [], size
    while left and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _above(path: bytes) -> Iterator[bytes]:
    """Yield the folders that contain a path, nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


class _Level:
    """A folder that is being filled."""

    def __init__(self) -> None:
        self.files: dict[bytes, Entry] = {}
        self.below: dict[bytes, _Level] = {}


def write_folder(folder: Path, entries: Entries, blobs: IO[bytes], user: Owner | None) -> None:
    """Write a tree into an empty folder, created if absent. `blobs` answers `cat-file --batch`, in our order.

    Raises `RepositoryUnfit` for a folder that is not empty, and a tree that git would not have made.
    """
    top = _levels(entries)
    root = _empty(folder)
    try:
        _fill(root, top, blobs, user)
    except FileExistsError as error:
        raise RepositoryUnfit(
            f"{folder} was changed by another process while a commit was written into it ({error.filename}); "
            "remove it and try again"
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"the disk took no more bytes of {folder}; the repository is safe: free some space, then try again"
            ) from None
        raise RepositoryUnfit(
            f"a commit could not be written into {folder}: {error.strerror}; the repository is safe: mend that, and "
            "try again in an empty folder"
        ) from None
    finally:
        os.close(root)


def order(entries: Entries) -> Iterator[str]:
    """Return the names of the blobs, in the order in which `write_folder` reads them."""
    return _order(_levels(entries))


def _order(level: _Level) -> Iterator[str]:
    yield from (entry.id for entry in level.files.values() if entry.mode != SUBMODULE)
    for below in level.below.values():
        yield from _order(below)


def _levels(entries: Entries) -> _Level:
    top = _Level()
    for path, entry in entries.items():
        if not is_plain_path(path) or path.count(b"/") > MAX_DEPTH:
            raise _hostile(path)
        *folders, name = path.split(b"/")
        level = top
        for each in folders:
            if each in level.files:
                raise _hostile(path)
            level = level.below.setdefault(each, _Level())
        if name in level.files or name in level.below:
            raise _hostile(path)
        level.files[name] = entry
    return top


def _hostile(path: bytes) -> RepositoryUnfit:
    return RepositoryUnfit(
        f"a commit has a path that leads out of its folder, into a .git, or to two things at once: "
        f"{shown(path)[:200]!r}; nothing was written: name another commit"
    )


def _empty(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder, _FOLDER)
    except OSError as error:
        raise RepositoryUnfit(
            f"{folder} cannot be made to write a commit into: {error.strerror}; nothing was changed: name another "
            "folder"
        ) from None
    if os.listdir(fd):
        os.close(fd)
        raise RepositoryUnfit(
            f"{folder} is not empty, and a commit is written into an empty folder only; nothing was changed: name "
            "another folder"
        )
    return fd


def _fill(fd: int, level: _Level, blobs: IO[bytes], user: Owner | None) -> None:
    for name, entry in level.files.items():
        if entry.mode == SUBMODULE:
            os.mkdir(name, 0o755, dir_fd=fd)
            _give(name, fd, user)
        elif entry.mode == LINK:
            os.symlink(b"".join(_chunks(blobs, entry.id)), name, dir_fd=fd)
            _give(name, fd, user)
        else:
            _write(fd, name, entry, _chunks(blobs, entry.id), user)
    for name, below in level.below.items():
        os.mkdir(name, 0o700, dir_fd=fd)
        inner = os.open(name, _FOLDER, dir_fd=fd)
        try:
            _fill(inner, below, blobs, user)
            os.fchmod(inner, 0o755)
        finally:
            os.close(inner)
    if user:
        os.fchown(fd, *user)


def _give(name: bytes, fd: int, user: Owner | None) -> None:
    if user:
        os.chown(name, *user, dir_fd=fd, follow_symlinks=False)


def _write(folder: int, name: bytes, entry: Entry, chunks: Iterable[bytes], user: Owner | None) -> None:
    fd = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
        if user:
            os.fchown(fd, *user)
        os.fchmod(fd, 0o755 if entry.mode == PROGRAM else 0o644)
    finally:
        os.close(fd)


def _chunks(blobs: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the bytes of the next blob. Raises `RepositoryUnfit` if git sends another one, or none."""
    words = blobs.readline().split()
    if len(words) != 3 or words[0] != name.encode() or words[1] != b"blob":
        raise RepositoryUnfit(
            f"the object {name} is not in the repository, or is damaged; nothing of the repository was changed: run "
            "`git fsck` there, and fetch again what is missing"
        )
    left = int(words[2])
    while left:
        chunk = blobs.read(min(left, CHUNK))
        if not chunk:
            raise RepositoryUnfit(f"git ended in the middle of the object {name}; try again in an empty folder")
        left -= len(chunk)
        yield chunk
    blobs.read(1)
