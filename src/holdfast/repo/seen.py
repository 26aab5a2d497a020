"""What was seen of a workspace by its last snapshot, so that an unchanged file is not read again.

A file is unchanged when its inode, mode, size and both times are. A file that changed at or after the
moment at which the walk began is not noted: it might change again within the same tick of the kernel's
clock (git's rule for racily clean files). A program can set the one time back, not the other. One
thing escapes: a page that is still dirty in a shared mapping can be written to without a new time,
so a file that a living program maps while a snapshot is made may be noted too early.

This is a cache: it holds only as long as the reference of the snapshot that it was written with, since
only that keeps the objects it names in the store.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

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

    Folders are noted by inode: one that was moved is known again.
    """

    form: int
    root: tuple[int, int]
    user: tuple[int, int] | None
    ref: str
    tree: bytes
    folders: dict[int, SeenFolder]


def stamp(found: os.stat_result) -> Stamp:
    """What says whether a file is the one that was read."""
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def load(path: Path) -> Seen | None:
    """What was saved there, or None: never an error, since everything can be read anew."""
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
    """The bytes to save, with their digest: a torn file is no file."""
    body = msgspec.msgpack.encode(seen)
    return hashlib.sha256(body).digest() + body
