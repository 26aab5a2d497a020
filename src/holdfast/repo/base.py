"""The door to snapshots of workspaces: its Protocol and data types (S22).

A snapshot is named by what is in it: the same tree has the same name, in every session. What is kept:
files and their permission bits, folders (empty ones too), symbolic links as links. What is not: anything
named `.git`, owners, times, extended attributes, that two names are one file, and what is no file at
all (a FIFO, a socket, a device, another file system mounted there). What could not be kept is named.

A snapshot is the state of one moment only when nothing writes meanwhile. If something does, each file
is as it was when it was read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec


class Owner(NamedTuple):
    """The user and group that tool calls run as."""

    uid: int
    gid: int


class Skipped(msgspec.Struct, frozen=True):
    """One thing of the workspace that is not in the snapshot, and why."""

    path: str
    why: str


class Kept(msgspec.Struct, frozen=True):
    """A snapshot: its name, how many files and links and how many bytes are in it.

    `read` of the files were read for it; the others had not changed since the last one. `skipped`
    names the first of `skipped_total` things that are not in it.
    """

    snapshot: str
    files: int
    bytes: int
    read: int = 0
    skipped: tuple[Skipped, ...] = ()
    skipped_total: int = 0


class Restored(msgspec.Struct, frozen=True):
    """Number of files and links, and of bytes, that were restored into a folder."""

    files: int
    bytes: int


class Change(msgspec.Struct, frozen=True):
    """One path that differs. A folder ends in `/` and is named only when it is empty or its mode changed.

    `ignored` says that the `.gitignore` files of the earlier snapshot leave it out.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    ignored: bool = False


class Shelf(Protocol):
    """Store of the snapshots of all sessions of a home.

    Every verb raises `CannotRunSafely` when the machine has not what it takes, `StorageFull`, or
    `SnapshotFailed`, and leaves what was kept before as it was.
    """

    async def keep(self, session_id: str, folder: Path, seq: int, *, user: Owner | None = None) -> Kept:
        """Keep the folder as it is after every event up to `seq`.

        `user` is who tool calls run as: what they may not read is not kept, so that no snapshot can
        hand it to them. Root should name it; without it the folder's owner is meant.
        """
        ...

    async def restore(self, snapshot: str, folder: Path, *, user: Owner | None = None) -> Restored:
        """Put a snapshot into an empty folder, made if it is not there.

        With `user` all of it, and the folder, is theirs; only root can do that for another one. After
        an error the folder may hold a part; remove it.
        """
        ...

    async def changes(self, before: str, after: str) -> list[Change]:
        """Return the differences between two snapshots, ordered by path."""
        ...

    async def forget(self, session_id: str) -> None:
        """Drop the snapshots of a session, except what others have too. Safe to repeat."""
        ...

    async def tidy(self, *, timeout_s: float = 300.0) -> int:
        """Give back the space of what was forgotten, and of dead processes. Returns the bytes freed.

        It stops after `timeout_s`; nothing is lost then, and the next one goes on.
        """
        ...


def shown(path: bytes) -> str:
    """Format a path for display; bytes that are not UTF-8 are escaped."""
    return path.decode("utf-8", "backslashreplace")
