"""Where everything about one session's proxy is, and how its sockets are reached whatever their paths' length.

<home>/egress/SESSION/             ours alone
    lock  control  state  log
    notes/journal                   the proxy's own
<home>/egress/doors/SESSION/       shown to hands, read-only
    s  ca.pem  apt.conf
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import EgressUnavailable, UsageError
from holdfast.privileges import folder_mode

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FLOCK = "hhqqi0q"


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
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def hold_lock(path: Path) -> int:
    """Lock it for life. Raises `BlockingIOError` when another proxy lives."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, f"{path} is locked") from None
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
