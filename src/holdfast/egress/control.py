"""Control of a session's proxy: its folder, its sockets, its lock, and the messages it takes.

<home>/egress/SESSION/             only for our user
    lock  control  state  log
    notes/journal                   written by the proxy
<home>/egress/doors/SESSION/       shown in the sandbox, read-only
    s  ca.pem  apt.conf
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
from collections.abc import Set
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from holdfast import locks
from holdfast.errors import EgressUnavailable, UsageError
from holdfast.facts.session import Destination, EgressPolicy
from holdfast.privileges import folder_mode

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Places(NamedTuple):
    """The paths of one session."""

    own: Path
    door: Path

    @property
    def lock(self) -> Path:
        """Held by the living proxy."""
        return self.own / "lock"

    @property
    def control(self) -> Path:
        """The socket for our own user."""
        return self.own / "control"

    @property
    def journal(self) -> Path:
        """What was noted."""
        return self.notes / "journal"

    @property
    def notes(self) -> Path:
        """The one folder that the proxy itself may write in."""
        return self.own / "notes"

    @property
    def state(self) -> Path:
        """What the next proxy of this session needs: its placeholders."""
        return self.own / "state"

    @property
    def log(self) -> Path:
        """What the proxy itself complains about."""
        return self.own / "log"

    @property
    def socket(self) -> Path:
        """The socket for hands."""
        return self.door / "s"

    @property
    def bundle(self) -> Path:
        """The certificates that hands trust."""
        return self.door / "ca.pem"


def places(folder: Path, session_id: str) -> Places:
    """Where the proxy of that session has its things."""
    if not _NAME.fullmatch(session_id):
        raise UsageError(f"{session_id!r} cannot be the id of a session")
    return Places(folder / session_id, folder / "doors" / session_id)


def make(folder: Path, session_id: str) -> Places:
    """Make the folders. Raises `EgressUnavailable`."""
    found = places(folder, session_id)
    passable = folder_mode()
    try:
        folder.parent.mkdir(mode=passable, parents=True, exist_ok=True)
        for path, mode in (
            (folder, passable),
            (found.own, 0o700),
            (found.notes, 0o700),
            (folder / "doors", passable),
            (found.door, 0o755),
        ):
            path.mkdir(mode=mode, exist_ok=True)
            if path.lstat().st_uid == os.geteuid():
                path.chmod(mode)
        with contextlib.suppress(FileNotFoundError):  # where an earlier version had it
            (found.own / "journal").rename(found.journal)
    except OSError as error:
        raise EgressUnavailable(
            f"the folder {folder} for the way outside cannot be used ({error.strerror}); hands have no network: make "
            "it writable, or choose another home with --home"
        ) from None
    return found


def is_locked(path: Path) -> bool:
    """True while a proxy lives. Raises `EgressUnavailable` when that cannot be known."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    except OSError as error:
        raise EgressUnavailable(
            f"nobody can say whether a proxy lives, since {path} cannot be read ({error.strerror}); nothing was let "
            "through: run as the user who owns it"
        ) from None
    try:
        return locks.is_locked(fd)
    finally:
        os.close(fd)


def hold_lock(path: Path) -> int:
    """Lock it for life. Raises `BlockingIOError` when another proxy lives."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not locks.try_lock(fd):
        os.close(fd)
        raise BlockingIOError(errno.EAGAIN, f"{path} is locked")
    return fd


def listen(path: Path, mode: int) -> socket.socket:
    """A listening socket at that path, in place of whatever was there."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        new = f".{path.name}.new"
        path.with_name(new).unlink(missing_ok=True)
        sock.bind(f"/proc/self/fd/{folder}/{new}")
        path.with_name(new).chmod(mode)
        sock.listen(128)
        path.with_name(new).replace(path)
    except BaseException:
        sock.close()
        raise
    finally:
        os.close(folder)
    return sock


def reach(path: Path) -> socket.socket:
    """Connect to the socket at that path, without blocking. Raises `OSError`."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except BaseException:
        sock.close()
        raise
    return sock


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Put a file there in one step."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(content)
    new.replace(path)


class Orders(msgspec.Struct, frozen=True):
    """What holds from now on. `vault` is a vault's handover, which may have values in it: it goes through pipes and
    our own sockets only. `wary` holds all secrets once
    strangers were read. `uids` may connect. `registries` is what the policy's word for them stands for.
    """

    policy: EgressPolicy
    vault: bytes
    placeholders: dict[str, str]
    held: tuple[str, ...] = ()
    wary: bool = False
    uids: tuple[int, ...] = ()
    registries: tuple[Destination, ...] = ()


class Launch(msgspec.Struct, frozen=True):
    """All that a proxy needs. `folder` and `session_id` say where its things are.

    `network` is what its program makes its `Network` of. `bundle` is a file of certificates to trust outside.
    `through` is the network's own proxy, `host:port`, empty for none. It ends `idle_s` after the last connection, and
    after `longest_s` as soon as nothing is under way.
    """

    folder: str
    session_id: str
    orders: Orders
    network: str = ""
    bundle: str = ""
    through: str = ""
    idle_s: float = 900.0
    longest_s: float = 14 * 86_400.0


class Ready(msgspec.Struct, frozen=True):
    """How the start went, or why not."""

    ok: bool
    problem: str = ""
    pid: int = 0


class Ask(msgspec.Struct, frozen=True):
    """One question over the control socket."""

    verb: Literal["hello", "change", "notes", "close"]
    orders: Orders | None = None
    after: int = 0


class Reply(msgspec.Struct, frozen=True):
    """Its answer."""

    ok: bool
    problem: str = ""
    pid: int = 0


LINE_MAX = 8 << 20
"""Bytes in a question at most."""


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
        if not locks.try_flock(turn) or is_locked(found.lock):  # the lock keeps another process from starting one
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
