"""Contents of a layer: the new files and folders of a set-up, each named by its topmost new folder, and nothing else.

A set-up's writes to the workspace go to a separate folder. New entries there become a layer; changes to existing
files are left out, so that the work sees the workspace unchanged.
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
"""Largest number of folders and files of a layer over a workspace."""

CACHE = "ld.so.cache"
"""Library cache, beside the root of the unpacked packages."""

_JUNK = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git", ".hypothesis"})
_OPAQUE = "user.overlay.opaque"


class Kept(NamedTuple):
    """Paths that a layer adds to the workspace, and changed paths that are left out."""

    laid: tuple[Laid, ...]
    changed: tuple[str, ...]


def keep_new(upper: Path, real: Path, *, lfs: bool) -> Kept:
    """Find the new entries in `upper` over the workspace `real`, and remove all others."""
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
            f"the set-up made {len(laid)} new entries in the workspace ({some} …); the limit is {ENTRIES_MAX}. "
            "Nothing was kept. Let the set-up write into one folder"
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
    """Return the paths that unpacked packages add: programs under `/usr`, and new entries under `/etc` and `/opt`.

    Programs of the packages ran there, so any entry may be a link to the host; links are left out.
    """
    if root.is_symlink() or (root / "usr").is_symlink():
        raise EnvironmentFailed(
            f"the packages replaced {root / 'usr'} by a link, which could show any folder of this host in the sandbox; "
            "nothing was kept. Remove the package that does this"
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
"""Folders under /etc that every sandbox has; those of the packages are overlays on them."""

_NEVER = frozenset({"passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ssl", "environment"})
"""Entries of /etc that belong to the sandbox or to Holdfast."""


def size_of(folder: Path) -> int:
    """Return the disk usage of a folder, in bytes. Links are not followed; a file with two names counts once."""
    total, seen = 0, set()
    for path, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(path, name))
            if found.st_nlink == 1 or found.st_ino not in seen:
                seen.add(found.st_ino)
                total += found.st_blocks * 512
    return total


def remove(path: Path) -> None:
    """Remove a file or folder, even one without permissions. Links are not followed."""
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
