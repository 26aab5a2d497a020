"""The interface for workspace snapshots: its Protocol and data types (S22).

A snapshot is named by its content: the same tree has the same name, in every session. It keeps files and their
permission bits, folders (empty ones too), and symbolic links as links. It does not keep entries named `.git`, owners,
times, extended attributes, hard links between files, and entries that are not files at all (a FIFO, a socket, a device,
a mounted file system). Entries that could not be kept are named.

A snapshot shows a single moment only if nothing writes meanwhile. Otherwise each file is as it was when it was read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.errors import UsageError


class Owner(NamedTuple):
    """The user and group that tool calls run as."""

    uid: int
    gid: int


class Skipped(msgspec.Struct, frozen=True):
    """One entry of the workspace that is not in the snapshot, with the reason."""

    path: str
    why: str


class Kept(msgspec.Struct, frozen=True):
    """A snapshot: its name, the number of its files and links, and their bytes.

    `read` of the files were read for it; the others had not changed since the last one. `skipped` names the first of
    `skipped_total` entries that are not in it. `grown` are the bytes that the session's snapshots added to the store
    since some of them were last forgotten.
    """

    snapshot: str
    files: int
    bytes: int
    read: int = 0
    skipped: tuple[Skipped, ...] = ()
    skipped_total: int = 0
    grown: int = 0


class Restored(msgspec.Struct, frozen=True):
    """Number of files and links, and of bytes, that were restored into a folder."""

    files: int
    bytes: int


class Change(msgspec.Struct, frozen=True):
    """One path that differs. A folder ends in `/` and is named only if it is empty or its mode changed.

    `ignored` is True if the `.gitignore` files of the earlier snapshot exclude the path.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    ignored: bool = False


class Shelf(Protocol):
    """Store of the snapshots of all sessions of a home.

    Every verb raises `CannotRunSafely` if the machine lacks a requirement, `StorageFull`, or `SnapshotFailed`, and
    leaves earlier snapshots unchanged.
    """

    async def keep(self, session_id: str, folder: Path, seq: int, *, user: Owner | None = None) -> Kept:
        """Keep the folder as it is after every event up to `seq`.

        `user` is the user that tool calls run as: files that they may not read are not kept, so that no snapshot can
        give them access. Root should pass it; without it the folder's owner is assumed.
        """
        ...

    async def restore(self, snapshot: str, folder: Path, *, user: Owner | None = None) -> Restored:
        """Restore a snapshot into an empty folder, created if absent.

        With `user` the folder and its contents belong to that user; only root can do that for another one. After an
        error the folder may hold a part; remove it.
        """
        ...

    async def changes(self, before: str, after: str) -> list[Change]:
        """Return the differences between two snapshots, ordered by path."""
        ...

    async def diff(self, before: str, after: str) -> str:
        """Return the differences between two snapshots as a patch in git's form; binary files are only named."""
        ...

    async def files(self, snapshot: str) -> list[str]:
        """Return the paths of the files and links of a snapshot, ordered; bytes that are not UTF-8 are escaped."""
        ...

    async def content(self, snapshot: str, path: str, limit: int) -> bytes:
        """Return at most `limit` bytes of the beginning of a file, or of the target of a link.

        Raises `UsageError` if the snapshot has no such file.
        """
        ...

    async def look(self, session_id: str, folder: Path, *, user: Owner | None = None) -> Kept:
        """Return what `keep` would, without keeping anything."""
        ...

    async def kept(self, session_id: str = "") -> dict[str, list[str]]:
        """Return the names of the snapshots by session, of one or all; the latest of each session is the last."""
        ...

    async def frees(self, gone: Mapping[str, Collection[str]]) -> int:
        """Return about how many bytes `tidy` would free after `thin`."""
        ...

    async def thin(self, gone: Mapping[str, Collection[str]]) -> None:
        """Drop some snapshots of sessions, except those that other sessions share. Safe to repeat."""
        ...

    async def forget(self, *session_ids: str) -> None:
        """Drop all snapshots of sessions, except those that other sessions share. Safe to repeat."""
        ...

    async def tidy(self, *, timeout_s: float = 300.0) -> int:
        """Free the space of forgotten snapshots and of dead processes. Returns the bytes freed.

        It stops after `timeout_s`; nothing is lost then, and the next run continues.
        """
        ...


def no_file(path: str) -> UsageError:
    """Return the error for a path that a snapshot does not have."""
    return UsageError(f"there is no file {path!r} in the workspace at that position; list its files")


def shown(path: bytes) -> str:
    """Format a path for display; bytes that are not UTF-8 are escaped."""
    return path.decode("utf-8", "backslashreplace")
