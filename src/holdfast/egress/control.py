"""Control of a session's proxy: its folder, its sockets, its lock, and the messages that it accepts.

<home>/egress/SESSION/             only for Holdfast's user
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
    """Paths of one session's proxy."""

    own: Path
    door: Path

    @property
    def lock(self) -> Path:
        """Lock file, held by the running proxy."""
        return self.own / "lock"

    @property
    def control(self) -> Path:
        """Control socket, for Holdfast's own user."""
        return self.own / "control"

    @property
    def journal(self) -> Path:
        """Journal of requests."""
        return self.notes / "journal"

    @property
    def notes(self) -> Path:
        """The only folder that the proxy may write to."""
        return self.own / "notes"

    @property
    def state(self) -> Path:
        """Placeholders of the session, stored for its next proxy."""
        return self.own / "state"

    @property
    def log(self) -> Path:
        """Error log of the proxy."""
        return self.own / "log"

    @property
    def socket(self) -> Path:
        """Socket for the sandbox."""
        return self.door / "s"

    @property
    def bundle(self) -> Path:
        """Certificates that the sandbox trusts."""
        return self.door / "ca.pem"


def places(folder: Path, session_id: str) -> Places:
    """Return the paths of the proxy of a session."""
    if not _NAME.fullmatch(session_id):
        raise UsageError(f"{session_id!r} is not a valid session id")
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
        with contextlib.suppress(FileNotFoundError):  # location in an earlier version
            (found.own / "journal").rename(found.journal)
    except OSError as error:
        raise EgressUnavailable(
            f"the folder {folder} of the egress proxies cannot be used ({error.strerror}); the sandbox has no "
            "network. Make the folder writable, or choose another home with --home"
        ) from None
    return found


def is_locked(path: Path) -> bool:
    """Return True while a proxy is running. Raises `EgressUnavailable` if that cannot be determined."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    except OSError as error:
        raise EgressUnavailable(
            f"{path} cannot be read ({error.strerror}), so it is unknown if a proxy lives; no request was allowed. "
            "Run as the user who owns the file"
        ) from None
    try:
        return locks.is_locked(fd)
    finally:
        os.close(fd)


def hold_lock(path: Path) -> int:
    """Lock the file for the life of this process. Raises `BlockingIOError` while another proxy is running."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not locks.try_lock(fd):
        os.close(fd)
        raise BlockingIOError(errno.EAGAIN, f"{path} is locked")
    return fd


def listen(path: Path, mode: int) -> socket.socket:
    """Listen on a socket at a path of any length; replaces an existing one."""
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
    """Connect to a socket at a path of any length, without blocking. Raises `OSError`."""
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
    """Replace a file atomically."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(content)
    new.replace(path)


class Orders(msgspec.Struct, frozen=True):
    """The policy and secrets to apply from now on.

    `vault` is the handover of a vault; it may contain values, so it is sent only through pipes and private sockets.
    `wary` holds all secrets once untrusted text was read. `uids` may connect. `registries` are the package registries.
    """

    policy: EgressPolicy
    vault: bytes
    placeholders: dict[str, str]
    held: tuple[str, ...] = ()
    wary: bool = False
    uids: tuple[int, ...] = ()
    registries: tuple[Destination, ...] = ()


class Launch(msgspec.Struct, frozen=True):
    """Input of a new proxy process. `folder` and `session_id` determine its paths.

    `network` is the argument from which its program makes its `Network`. `bundle` is a file of certificates to trust
    upstream. `through` is the upstream proxy of the network, `host:port`, empty for none. The proxy exits `idle_s`
    after its last connection, and after `longest_s` as soon as it is idle.
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
    """Result of a start."""

    ok: bool
    problem: str = ""
    pid: int = 0


class Ask(msgspec.Struct, frozen=True):
    """A request over the control socket."""

    verb: Literal["hello", "change", "notes", "close"]
    orders: Orders | None = None
    after: int = 0


class Reply(msgspec.Struct, frozen=True):
    """The reply to an `Ask`."""

    ok: bool
    problem: str = ""
    pid: int = 0


LINE_MAX = 8 << 20
"""Longest request, in bytes."""


def sweep_doors(folder: Path, at_work: Set[str] | None) -> int:
    """Remove the doors below `folder` whose proxy is dead and whose session has no sandbox. Return their number.

    Each door has a copy of all certificates that the machine trusts. `at_work` are the sessions with a live sandbox,
    which has the folder mounted; with None, only files are removed.
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
        if not locks.try_flock(turn) or is_locked(found.lock):  # the lock keeps other processes from starting a proxy
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
