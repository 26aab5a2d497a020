"""Trust in settings files of projects: the accepted files, by path, owner, and digest.

The trust store lies in the user's own configuration folder, outside of every workspace. Files of a project are opened
component by component, and no symbolic link below the folder is followed."""

from __future__ import annotations

import errno
import fcntl
import grp
import hashlib
import json
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from holdfast.errors import CannotRunSafely, NotTrusted
from holdfast.session.context.text import visible

FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for opening a folder only to traverse it."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

BYTES_MAX = 4 << 20
"""Maximum size of a settings, prompt, rules, or contract file; a larger one is refused."""


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
    """Open one component. A link to a folder fails with `ENOTDIR`; report it as a link."""
    try:
        return os.open(name, flags, dir_fd=above)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK) and _is_link(name, above):
            raise OSError(errno.ELOOP, "a symbolic link is not followed here", name) from None
        raise


def _is_link(name: str, above: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


STORE = "trust.json"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A settings file as the user accepted it: its absolute path, its owner, and the digest of all files it names."""

    path: str
    uid: int
    digest: str
    accepted: str

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.accepted)  # a store with another text there is damaged

    @property
    def accepted_us(self) -> int:
        """The time of the acceptance, in microseconds since 1970."""
        return int(datetime.fromisoformat(self.accepted).timestamp() * 1_000_000)


class _Store(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int = 1
    files: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class SettingsFile:
    """A settings file of a project, read once: the hashed content is the content used.

    `named` holds the files that it names, by their paths below its folder. `problem` says why none of its keys may
    count; it is empty if only the user and root can have written the file.
    """

    path: Path
    uid: int
    data: bytes
    named: Mapping[str, bytes]
    problem: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 hex of the file's bytes and of the names and bytes of the files that it names."""
        parts = {"": self.data, **self.named}
        listing = [[name, hashlib.sha256(parts[name]).hexdigest()] for name in sorted(parts)]
        return hashlib.sha256(json.dumps(listing).encode()).hexdigest()


class Ignored(NamedTuple):
    """Keys of a project's settings file that do not count, and why."""

    path: str
    keys: tuple[str, ...]
    problem: str = ""

    def note(self) -> str:
        """The message about the ignored keys."""
        which = visible(", ".join(self.keys))
        if self.problem:
            return f"ignored all settings in {self.path}{f' ({which})' if which else ''}: {self.problem}"
        return f"ignored in {self.path}: {which}; you have not accepted it. See what it changes: {self._command()}"

    def error(self, keys: tuple[str, ...]) -> NotTrusted:
        """The error of a command that needs some of these keys."""
        which = visible(", ".join(keys))
        if self.problem:
            return NotTrusted(
                f"{which} is set only in {self.path}, of which nothing counts: {self.problem}; nothing was started. "
                "Mend that, or set it in your own holdfast.toml or on the command line"
            )
        return NotTrusted(
            f"{which} is set only in {self.path}, which you have not accepted; nothing was started. Look at it and "
            f"accept it: {self._command()}"
        )

    def _command(self) -> str:
        return f"holdfast trust {shlex.quote(visible(str(Path(self.path).parent)))}"


def require(ignored: tuple[Ignored, ...], *wanted: str) -> None:
    """Raise `NotTrusted` if one of these keys, or a key below them, is set only in an ignored file."""
    for each in ignored:
        keys = tuple(key for key in each.keys if any(key == name or key.startswith(f"{name}.") for name in wanted))
        if each.problem and not each.keys and wanted == ("model",):
            keys = wanted  # the file could not be read at all
        if keys:
            raise each.error(keys)


# --- reading a settings file -----------------------------------------------------------------------


def read_settings_file(path: Path, names: Callable[[bytes], Iterator[str]]) -> SettingsFile:
    """Read a settings file of a project and the files that it names. Raises `OSError` when it cannot be read.

    `names` gives the paths of those files, relative to the folder; `PATH/*` stands for all files below a folder,
    and `PATH/*.md` for those in it with that suffix.
    """
    folder = path.parent
    problem = unsafe(path)
    try:
        data = read_beneath(folder, path.name) if os.path.lexists(path) else b""
    except OSError as error:
        if not problem:
            raise
        return SettingsFile(path, os.lstat(path).st_uid, b"", {}, problem or str(error.strerror))
    named: dict[str, bytes] = {}
    for name in names(data) if not problem else ():
        problem = problem or _read_named(folder, name, named)
    uid = os.lstat(path).st_uid if os.path.lexists(path) else os.lstat(folder).st_uid
    return SettingsFile(path, uid, data, named, problem)


def _read_named(folder: Path, name: str, found: dict[str, bytes]) -> str:
    """Read one file, or all files of a folder. Return why the file must not count; a missing file is no reason."""
    try:
        above, star, suffix = name.partition("/*")
        inside = [f"{above}/{each}" for each in list_beneath(folder, above) if each.endswith(suffix)] if star else []
        for each in inside or ([] if star else [name]):
            if problem := unsafe(folder / each):
                return problem
            if not star or not stat.S_ISDIR(os.lstat(folder / each).st_mode):
                found[each] = read_beneath(folder, each)
            elif not suffix and (problem := _read_named(folder, f"{each}/*", found)):
                return problem
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"it names {name}, which cannot be read: {error.strerror}"
    return ""


def unsafe(path: Path) -> str:
    """Return a problem if another user may have written or can replace `path`; empty if only the caller and root can.

    The file and each folder above it must belong to the caller or root and be unwritable for others. A sticky folder is
    safe, since no user can replace another user's files there; so is a group whose only member is the owner.
    """
    fd = os.open("/", FOLDER)
    place = Path("/")
    try:
        for name in path.parts[1:]:
            if problem := _open_to_others(fd, place):
                return problem
            place /= name
            try:
                below = os.open(name, FOLDER & ~os.O_DIRECTORY, dir_fd=fd)
            except FileNotFoundError:
                return ""
            os.close(fd)
            fd = below
        return _open_to_others(fd, place)
    except OSError as error:
        return f"{place} cannot be checked: {error.strerror}"
    finally:
        os.close(fd)


def _open_to_others(fd: int, place: Path) -> str:
    found = os.fstat(fd)
    shown = visible(str(place))
    if stat.S_ISLNK(found.st_mode):
        return f"{shown} is a symbolic link"
    if found.st_uid not in (0, os.geteuid()):
        return f"{shown} belongs to {_login(found.st_uid)}"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & stat.S_IWOTH:
        return f"every user can write to {shown}"
    if found.st_mode & stat.S_IWGRP and not _is_private_group(fd, found):
        return f"the members of the group {found.st_gid} can write to {shown}"
    return ""


def _is_private_group(fd: int, found: os.stat_result) -> bool:
    """True if the owner is the only member of the group and no access control list names another user."""
    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
        lists = os.listxattr(f"/proc/self/fd/{fd}")
    except (KeyError, OSError):
        return False
    others = [user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid and user.pw_uid != owner.pw_uid]
    own_group = owner.pw_gid == group.gr_gid
    return own_group and not others and not {*group.gr_mem} - {owner.pw_name} and "system.posix_acl_access" not in lists


def _login(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


# --- the store -------------------------------------------------------------------------------------


class TrustStore:
    """The accepted files, kept in `trust.json` of the user's configuration folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / STORE

    def entries(self) -> tuple[Entry, ...]:
        """All entries. Raises `CannotRunSafely` if the store is damaged or other users could have written it."""
        if not os.path.lexists(self.path):
            return ()
        place = self._folder.resolve() / STORE
        if problem := unsafe(place):
            raise CannotRunSafely(
                f"{self.path} is not trusted: {problem}; fix that, or remove it and accept the settings again"
            )
        try:
            return msgspec.json.decode(read_beneath(place.parent, STORE), type=_Store).files
        except (OSError, msgspec.MsgspecError) as error:
            raise CannotRunSafely(
                f"{self.path} cannot be read ({error}); remove it and accept the settings again"
            ) from error

    def accepts(self, file: SettingsFile) -> bool:
        """True if the user accepted this file in its current state."""
        if file.problem:
            return False
        known = next((each for each in self.entries() if each.path == str(file.path)), None)
        return known is not None and (known.uid, known.digest) == (file.uid, file.digest)

    def accept(self, files: list[SettingsFile], at: str) -> None:
        """Accept these files in their current state. Raises `NotTrusted` for one that may not count."""
        for file in files:
            if file.problem:
                raise NotTrusted(f"{file.path} cannot be accepted: {file.problem}")
        with self._changed() as entries:
            for file in files:
                entries[str(file.path)] = Entry(str(file.path), file.uid, file.digest, at)

    def forget(self, folder: Path) -> tuple[str, ...]:
        """Forget the accepted files of that folder; return their paths."""
        with self._changed() as entries:
            gone = tuple(path for path in entries if Path(path).parent == folder)
            for path in gone:
                del entries[path]
        return gone

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Entry]]:
        """Read, change, and atomically replace the store under its lock."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if problem := unsafe(self._folder.resolve() / STORE):
                raise CannotRunSafely(
                    f"{self.path} would not be believed: {problem}; mend that, and nothing has changed"
                )
            lock = os.open(self._folder / ".trust.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                entries = {each.path: each for each in self.entries()}
                yield entries
                data = msgspec.json.format(msgspec.json.encode(_Store(files=tuple(entries.values()))))
                aside = self._folder / f".{STORE}.{os.getpid()}"
                aside.unlink(missing_ok=True)
                fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(data + b"\n")
                    file.flush()
                    os.fsync(fd)
                aside.replace(self.path)
            finally:
                os.close(lock)
        except OSError as error:
            raise CannotRunSafely(f"{self.path} cannot be written: {error.strerror}; nothing has changed") from error


def check_workspace(workspace: Path, config: Path) -> None:
    """Raise `CannotRunSafely` for a workspace in which the agent could rewrite the user's settings or the store."""
    if config.resolve().is_relative_to(workspace.resolve()):
        raise CannotRunSafely(
            f"the workspace {workspace} contains your settings folder {config}, where the agent could rewrite your "
            "settings and what you trust; nothing was started. Name a folder below it"
        )
