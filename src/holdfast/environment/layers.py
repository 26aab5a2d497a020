"""What of a finished set-up is kept: everything new, at the highest folder that is new, and nothing else.

Set-up wrote over the workspace into a folder of its own. What is new there becomes a layer, entry by entry; what it
changed in files that were there before is left out, so that the work sees the workspace as it is.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.environment.base import WORKSPACE, Laid
from holdfast.environment.recipes import LFS_POINTER
from holdfast.errors import EnvironmentFailed

ENTRIES_MAX = 200
"""So many folders and files may be laid over a workspace."""

CACHE = "ld.so.cache"
"""The list of libraries, beside the root of the unpacked packages."""

_JUNK = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", ".hypothesis"})
_OPAQUE = "user.overlay.opaque"


class Kept(NamedTuple):
    """What is laid over the workspace, and the paths that were changed and left out."""

    laid: tuple[Laid, ...]
    changed: tuple[str, ...]


def keep_new(upper: Path, real: Path, *, lfs: bool) -> Kept:
    """Find what is new in `upper` over the workspace `real`, and remove all else from it."""
    laid: list[Laid] = []
    changed: list[str] = []
    for below, kept in _walk(upper, real, "", lfs):
        if kept:
            path = upper / below
            laid.append(Laid(f"{WORKSPACE}/{below}", str(path), "own" if path.is_dir() else "read"))
        else:
            changed.append(below)
    if len(laid) > ENTRIES_MAX:
        some = ", ".join(each.inside for each in laid[:5])
        raise EnvironmentFailed(
            f"the set-up made things in {len(laid)} places of the workspace ({some} …), and {ENTRIES_MAX} are the most "
            "that can be laid over it; nothing was kept: let it write into one folder"
        )
    return Kept(tuple(laid), tuple(changed))


def _walk(upper: Path, real: Path, below: str, lfs: bool) -> Iterator[tuple[str, bool]]:
    with os.scandir(upper / below) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        over = _kind(real / path)
        if entry.name in _JUNK:
            remove(Path(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            if over in ("absent", "empty") or (over == "folder" and _opaque(entry.path)):
                yield path, True
            elif over == "folder":
                yield from _walk(upper, real, path, lfs)
            else:
                remove(Path(entry.path))
                yield path, False
        elif entry.is_file(follow_symlinks=False) and (over == "absent" or (lfs and _pointer(real / path))):
            yield path, True
        else:
            gone = not entry.is_file(follow_symlinks=False)
            remove(Path(entry.path))
            if not gone:
                yield path, False


def _kind(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError:
        return "absent"
    if not stat.S_ISDIR(found.st_mode):
        place = stat.S_ISREG(found.st_mode) and found.st_size == 0 and stat.S_IMODE(found.st_mode) == 0o444
        return "absent" if place else "other"
    try:
        return "folder" if os.listdir(path) else "empty"
    except OSError:
        return "other"


def _opaque(path: str) -> bool:
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _pointer(path: Path) -> bool:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(len(LFS_POINTER)) == LFS_POINTER
    except OSError:
        return False


def packages_laid(root: Path) -> tuple[Laid, ...]:
    """What unpacked packages lay: the system's programs under `/usr`, and new things under `/etc` and `/opt`.

    Programs of the packages ran beside it, so any name in there may be a link to the host; none of those is laid.
    """
    if root.is_symlink() or (root / "usr").is_symlink():
        raise EnvironmentFailed(
            f"the packages left a link in the place of {root / 'usr'}, which could show hands any folder of this host; "
            "nothing was kept: leave the package out that does so"
        )
    laid = [Laid("/usr", str(root / "usr"), "over")]
    for top in ("etc", "opt"):
        folder = root / top
        if folder.is_dir() and not folder.is_symlink():
            for entry in sorted(folder.iterdir()):
                shown = Path("/", top, entry.name)
                if not entry.is_symlink() and entry.name not in _NEVER:
                    both = entry.is_dir() and shown.is_dir() and entry.name in _SHOWN
                    if both or entry.name not in _SHOWN:
                        laid.append(Laid(str(shown), str(entry), "over" if both else "read"))
    cache = root.parent / CACHE
    if cache.is_file() and not cache.is_symlink():
        laid.append(Laid("/etc/ld.so.cache", str(cache), "read"))
    return tuple(laid)


_SHOWN = frozenset({"ld.so.conf.d", "alternatives"})
"""Folders under /etc that hands see anyway: those of the packages are laid over them."""

_NEVER = frozenset({"passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ssl", "environment"})
"""What is the sandbox's own, or ours."""


def size_of(folder: Path) -> int:
    """Bytes on the disk of all that is in a folder. Links are not followed; a file with two names counts once."""
    total, seen = 0, set()
    for path, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(path, name))
            if found.st_nlink == 1 or found.st_ino not in seen:
                seen.add(found.st_ino)
                total += found.st_blocks * 512
    return total


def remove(path: Path) -> None:
    """Remove a file, or a folder and all in it, also when its permissions were taken away. Links are not followed."""
    try:
        found = path.lstat()
    except OSError:
        return
    if not stat.S_ISDIR(found.st_mode):
        path.unlink()
        return
    if os.getuid() != 0:
        path.chmod(0o700)
        for folder, inner, _ in os.walk(path):
            for name in inner:
                each = os.path.join(folder, name)
                if not os.path.islink(each):
                    os.chmod(each, 0o700)
    shutil.rmtree(path)
