"""Read a workspace that an agent may be changing, with a cache of unchanged files.

Every step goes from an open folder to a name in it and never through a link: a folder that becomes a link to /etc
meanwhile is not entered. Only regular files are opened for reading. Entries that cannot be kept are named; too many end
the walk with an error.

A file is unchanged if its inode, mode, size, and both times are. A file that changed at or after the start of the walk
is not cached: it might change again within one tick of the kernel's clock (git's rule for racily clean files). A dirty
page of a shared mapping has no new time yet, so a file that a live program maps may be cached too early. The cache is
valid only as long as the reference of its snapshot, which keeps the objects in the store.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from pathlib import Path

import msgspec

from holdfast.errors import SnapshotFailed
from holdfast.repo.base import Owner, Skipped, shown
from holdfast.repo.git import Library, Stopped
from holdfast.repo.objects import (
    CHUNK,
    Adding,
    Changing,
    Pack,
    Row,
    encode_row,
    kept_mode,
    object_id,
    sort_key,
    tree_bytes,
)
from holdfast.repo.plumbing.objects import is_git_name

MAX_DEPTH = 1_000
MAX_OPEN = 200
"""Folders open at once. A chain of folders needs two, whatever its length."""

NAMED_SKIPS = 50
_RETRIES = 3
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_ODD = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MOVING = "changed while it was read"


class _Level:
    """One folder of the walk that is not complete yet."""

    def __init__(self, fd: int, inode: int, row: Row) -> None:
        self.fd = fd
        self.inode = inode
        self.row = row
        self.below: list[str] = []
        self.rows: list[tuple[bytes, bytes]] = []
        self.files: dict[bytes, tuple[Stamp, bytes]] = {}


class Walk:
    """One walk that reads a folder into a pack. `began_ns` is the file system's time before it."""

    def __init__(
        self,
        *,
        user: Owner | None,
        seen: Seen | None,
        began_ns: int,
        pack: Pack,
        library: Library,
        max_files: int,
        max_bytes: int,
        stop: threading.Event,
    ) -> None:
        self._user = user
        self._old = seen.folders if seen else {}
        self._known = {folder.tree for folder in self._old.values()}
        self._began_ns = began_ns
        self._pack = pack
        self._library = library
        self._max_files, self._max_bytes = max_files, max_bytes
        self._stop = stop
        self._adding = Adding(pack, library)
        self._device = 0
        self._levels: list[_Level] = []
        self._open = 0
        self._entries = 0
        self.folders: dict[int, SeenFolder] = {}
        self.files = self.bytes = self.read = self.skipped_total = 0
        self.skipped: list[Skipped] = []

    def run(self, root: int) -> bytes:
        """Read everything below the open folder `root`; returns the name of its tree."""
        found = os.fstat(root)
        self._device = found.st_dev
        try:
            self._enter(_Level(os.dup(root), found.st_ino, Row(stat.S_IFDIR, b"", b"")))
            while True:
                level = self._levels[-1]
                if level.below:
                    self._descend(level)
                    continue
                tree = self._complete(self._levels.pop())
                if not self._levels:
                    self._flush()
                    return tree
        finally:
            for level in self._levels:
                self._close(level)

    def _enter(self, level: _Level) -> None:
        self._open += 1
        self._levels.append(level)
        if len(self._levels) > MAX_DEPTH or self._open > MAX_OPEN:
            raise SnapshotFailed(
                f"the workspace has folders nested too deep to be kept ({self._path()[:200]}…); nothing was "
                "changed: remove what nests so deep"
            )
        old = self._old.get(level.inode)
        self._scan(level, old.files if old else {})

    def _close(self, level: _Level) -> None:
        if level.fd >= 0:
            os.close(level.fd)
            level.fd = -1
            self._open -= 1

    def _skip(self, name: str, why: str) -> None:
        self.skipped_total += 1
        if len(self.skipped) < NAMED_SKIPS:
            self.skipped.append(Skipped(self._path(name), why))

    def _path(self, name: str = "") -> str:
        """Return the workspace path of a name in the current folder."""
        names = [level.row.name for level in self._levels[1:]]
        return shown(b"/".join([*names, os.fsencode(name)])[:4096])

    def _may_read(self, found: os.stat_result) -> bool:
        """True if tool calls could read the entry themselves; a snapshot holds nothing else."""
        if self._user is None or found.st_uid == self._user.uid:
            return True
        needed = 0o5 if stat.S_ISDIR(found.st_mode) else 0o4
        if found.st_gid == self._user.gid:
            return found.st_mode >> 3 & needed == needed
        return found.st_mode & needed == needed

    def _scan(self, level: _Level, old: dict[bytes, tuple[Stamp, bytes]]) -> None:
        if self._stop.is_set():
            raise Stopped
        with os.scandir(level.fd) as entries:
            for entry in entries:
                if entry.name == ".git":
                    continue
                if is_git_name(os.fsencode(entry.name)):
                    self._skip(entry.name, "taken for .git by other systems")
                    continue
                self._count()
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError:
                    self._skip(entry.name, "not readable")
                    continue
                if stat.S_ISDIR(found.st_mode):
                    level.below.append(entry.name)
                    continue
                name = os.fsencode(entry.name)
                known = old.get(name)
                if known is not None and known[0] == stamp(found):
                    self._add(level, name, found, known[1], noted=True)
                elif stat.S_ISREG(found.st_mode):
                    self._read_file(level, entry.name, found)
                elif stat.S_ISLNK(found.st_mode):
                    self._read_link(level, entry.name, found)
                else:
                    self._skip(entry.name, _ODD.get(stat.S_IFMT(found.st_mode), "not a file"))

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self._max_files:
            raise SnapshotFailed(
                f"the workspace has more than {self._max_files:,} files, too many to be kept; nothing was changed: "
                "remove what is not needed"
            )

    def _room_for(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self._max_bytes:
            raise SnapshotFailed(
                f"the workspace is larger than {self._max_bytes:,} bytes, too large to be kept; nothing was changed: "
                "remove what is not needed"
            )

    def _add(self, level: _Level, name: bytes, found: os.stat_result, row: bytes, *, noted: bool = False) -> None:
        if noted:
            self._room_for(found.st_size)
        self.files += 1
        level.rows.append((name, row))
        if noted or max(found.st_ctime_ns, found.st_mtime_ns) < self._began_ns:
            level.files[name] = (stamp(found), row)

    def _read_link(self, level: _Level, name: str, found: os.stat_result) -> None:
        try:
            target = os.fsencode(os.readlink(name, dir_fd=level.fd))
        except OSError:
            self._skip(name, _MOVING)
            return
        self._room_for(len(target))
        self.read += 1
        key = os.fsencode(name)
        self._add(level, key, found, encode_row(Row(stat.S_IFLNK, key, self._offer("blob", target))))

    def _read_file(self, level: _Level, name: str, found: os.stat_result) -> None:
        try:
            fd = os.open(name, _FILE, dir_fd=level.fd)
        except FileNotFoundError:
            return
        except PermissionError:
            self._skip(name, "not readable")
            return
        except OSError:
            self._skip(name, _MOVING)
            return
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                self._skip(name, _MOVING)
            elif not self._may_read(found):
                self._skip(name, "private to another user")
            else:
                self._take(level, name, fd, found)
        finally:
            os.close(fd)

    def _take(self, level: _Level, name: str, fd: int, found: os.stat_result) -> None:
        try:
            self._room_for(found.st_size)
            blob = self._small(fd, found.st_size) if found.st_size <= CHUNK else self._large(fd)
        except OSError as error:
            self._skip(name, f"not readable: {error.strerror}")
            return
        except Changing:
            self._skip(name, _MOVING)
            return
        self.read += 1
        key = os.fsencode(name)
        self._add(level, key, found, encode_row(Row(kept_mode(found.st_mode), key, blob)))

    def _small(self, fd: int, size: int) -> bytes:
        parts, left = [], size
        while left and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return self._offer("blob", b"".join(parts))

    def _large(self, fd: int) -> bytes:
        for _ in range(_RETRIES):
            if self._stop.is_set():
                raise Stopped
            try:
                blob, start = self._pack.add_file(fd, os.fstat(fd).st_size)
            except Changing:
                os.lseek(fd, 0, os.SEEK_SET)
                continue
            return self._adding.settle(blob, start)
        raise Changing

    def _offer(self, kind: str, data: bytes) -> bytes:
        if self._stop.is_set():
            raise Stopped
        return self._adding.offer(kind, data)

    def _flush(self) -> None:
        self._adding.flush()
        if self._stop.is_set():
            raise Stopped

    def _descend(self, level: _Level) -> None:
        name = level.below.pop()
        try:
            fd = os.open(name, _FOLDER, dir_fd=level.fd)
        except FileNotFoundError:
            fd = -1
        except PermissionError:
            self._skip(name, "not readable")
            fd = -1
        except OSError:
            self._skip(name, _MOVING)
            fd = -1
        if not level.below:
            self._close(level)
        if fd < 0:
            return
        found = os.fstat(fd)
        why = "another file system" if found.st_dev != self._device else ""
        if not why and not self._may_read(found):
            why = "private to another user"
        if why:
            os.close(fd)
            self._skip(name, why)
            return
        key = os.fsencode(name)
        self._enter(_Level(fd, found.st_ino, Row(kept_mode(found.st_mode), key, b"")))

    def _complete(self, level: _Level) -> bytes:
        self._close(level)
        data = tree_bytes(level.rows)
        tree = object_id("tree", data)
        if tree not in self._known:
            self._offer("tree", data)
        self.folders[level.inode] = SeenFolder(tree, level.files)
        if self._levels:
            row = level.row._replace(id=tree)
            self._levels[-1].rows.append((sort_key(row), encode_row(row)))
        return tree


def open_folder(path: Path) -> int:
    """Open the workspace itself. Its own path may lead through links: the user named it."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SnapshotFailed(
            f"the workspace {path} cannot be opened: {error.strerror}; nothing was changed: make it readable, or name "
            "another one"
        ) from None


Stamp = tuple[int, int, int, int, int]
"""Inode, mode, size, modification and change time in nanoseconds."""

FORM = 1
_DIGEST_BYTES = 32


class SeenFolder(msgspec.Struct, array_like=True):
    """One folder: the name of its tree, and each file or link in it, by name: stamp and encoded row."""

    tree: bytes
    files: dict[bytes, tuple[Stamp, bytes]]


class Seen(msgspec.Struct, array_like=True):
    """A whole workspace. `ref` is the reference that keeps it, `root` device and inode of the folder.

    Folders are identified by inode, so a moved one is recognized.
    """

    form: int
    root: tuple[int, int]
    user: tuple[int, int] | None
    ref: str
    tree: bytes
    folders: dict[int, SeenFolder]


def stamp(found: os.stat_result) -> Stamp:
    """Fields that identify an unchanged file."""
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def load(path: Path) -> Seen | None:
    """Load the cache; None if it is missing or invalid, since everything can be read again."""
    try:
        raw = path.read_bytes()
        body = raw[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != raw[:_DIGEST_BYTES]:
            return None
        seen = msgspec.msgpack.decode(body, type=Seen)
    except (OSError, msgspec.DecodeError):
        return None
    return seen if seen.form == FORM else None


def encode(seen: Seen) -> bytes:
    """Return the bytes to save, with their digest: a torn file is invalid."""
    body = msgspec.msgpack.encode(seen)
    return hashlib.sha256(body).digest() + body
