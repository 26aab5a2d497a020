"""Workspace files that can make programs on the host run code: editor and agent settings, hooks, repositories."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import CannotRunSafely
from holdfast.hands.launch import Place

KINDS = {
    ".git": "repository",
    "git~1": "repository",
    ".envrc": "direnv",
    ".vscode": "editor",
    ".mcp.json": "agent tools",
    ".claude": "agent settings",
    ".husky": "git hooks",
    "holdfast.toml": "Holdfast settings",
}
"""Kinds of programs that run code because of a file, by the plain form of the file's name."""

BARE = frozenset({"head", "config", "objects", "refs"})
"""Git treats a folder that has all of these as a repository, whatever its name."""

BARE_KIND = "bare repository"

ENTRIES_MAX = 200_000
"""Maximum number of workspace entries that are searched; the result says if the search stopped there."""

DEPTH_MAX = 200
LISTED_MAX = 1000

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(NamedTuple):
    """Paths from the workspace's root with their kinds, in order. `whole` unless the search or the list was cut."""

    kinds: dict[str, str]
    whole: bool


def plain(name: str) -> str:
    """Return a name as HFS+, APFS and NTFS compare it: without case, invisible characters, trailing dots and blanks."""
    if name.isascii():
        return name.lower().rstrip(". ").partition("::")[0]
    shown = "".join(char for char in unicodedata.normalize("NFC", name) if unicodedata.category(char) != "Cf")
    return shown.casefold().rstrip(". ").partition("::")[0]


def find(workspace: str) -> Found:
    """Find every such file, folder and link in a folder. Blocks; unreadable entries are left out."""
    search = _Search()
    try:
        top = os.open(workspace, _FOLDER)
    except OSError:
        return Found({}, True)
    search.walk(top)
    listed = sorted(search.kinds.items(), key=lambda item: (item[0].count("/"), item[0]))
    return Found(dict(listed[:LISTED_MAX]), search.whole and len(listed) <= LISTED_MAX)


class _Search:
    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.whole = True
        self._left = ENTRIES_MAX

    def walk(self, top: int) -> None:
        """Walk depth first by descriptors: a folder that is replaced by a link meanwhile is not followed."""
        stack = [("", top, self._names(top, ""))]
        while stack:
            path, fd, folders = stack[-1]
            if not folders or self._left <= 0:
                self.whole = self.whole and not folders
                os.close(fd)
                stack.pop()
                continue
            name = folders.pop()
            below = f"{path}{name}"
            if len(stack) >= DEPTH_MAX:
                self.whole = False
                continue
            try:
                inner = os.open(name, _FOLDER, dir_fd=fd)
            except OSError:
                continue
            stack.append((f"{below}/", inner, self._names(inner, f"{below}/")))

    def _names(self, fd: int, path: str) -> list[str]:
        """Record the matching entries of a folder; return the names of the folders to search."""
        folders, seen = [], set()
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left <= 0:
                        self.whole = False
                        break
                    seen.add(name := plain(entry.name))
                    if name in KINDS:
                        self.kinds[f"{path}{entry.name}"] = KINDS[name]
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
        except OSError:
            pass
        if seen >= BARE:
            self.kinds[path.rstrip("/") or "."] = BARE_KIND
        return folders


def read_only(workspace: str, most: int = 100) -> list[str]:
    """Return the paths to show read-only: existing files and folders, no links, without the root's own `.git`."""
    names: list[str] = []
    for path, kind in find(workspace).kinds.items():
        parts = [*sorted(BARE - {"objects"}), "hooks"] if path == "." else [path]
        if path == ".git" or any(path.startswith(f"{name}/") for name in names):
            continue
        if kind == BARE_KIND and path == ".":
            parts = [name for name in os.listdir(workspace) if plain(name) in parts]
        names += [part for part in parts if _stands(workspace, part)]
    return names[:most]


def _stands(workspace: str, name: str) -> bool:
    try:
        mode = os.lstat(os.path.join(workspace, name)).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


GIT = ".git"

_POINTER_MAX = 4096


def protected(workspace: Path) -> tuple[tuple[str, ...], tuple[Place, ...]]:
    """Return the workspace names to show read-only, `.git` first, and the mount points that must be created for that.

    Raises `CannotRunSafely` for a repository that cannot be protected from commands in this way.
    """
    path = workspace / GIT
    if path.is_symlink():
        raise CannotRunSafely(
            f"{path} is a symbolic link, which tool calls could replace by a repository of their own; nothing was "
            "started: use a real .git folder or a `gitdir:` file"
        )
    absent = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    places = (Place(str(workspace), GIT, "folder"),) if absent else ()
    return (GIT, *_pointed(workspace, path)), places


def guarded(workspace: Path, names: Iterable[str]) -> dict[str, bool]:
    """Return the paths to mount over themselves, in that order; the value is True if the path stays writable.

    They are the named files and folders that exist and that no link leads to: the sandbox does not show paths
    elsewhere. A folder above one of them stays writable, but as a mount of its own it cannot be moved away with it.
    Last come the files that make programs on the host run code (`host_files`).
    """
    root = os.path.realpath(workspace)
    plain = []
    for name in names:
        path = os.path.join(root, name)
        if os.path.exists(path) and os.path.realpath(path) == os.path.normpath(path):
            plain.append(name)
    above = {"/".join(parts[:count]) for name in plain for parts in [name.split("/")] for count in range(1, len(parts))}
    out = dict.fromkeys(sorted(above - set(plain)), True)
    return out | dict.fromkeys([*plain, *read_only(root)], False)


def _pointed(workspace: Path, path: Path) -> tuple[str, ...]:
    """Return the folder that a `gitdir:` file names, if it is in the workspace itself."""
    if not path.is_file():
        return ()
    with path.open("rb") as file:
        word, _, rest = file.read(_POINTER_MAX).partition(b":")
    if word != b"gitdir":
        return ()
    root = os.path.realpath(workspace)
    given = os.path.join(root, os.fsdecode(rest.strip(b" \r\n")))
    plain, real = os.path.normpath(given), os.path.realpath(given)
    if not any(f"{each}/".startswith(f"{root}/") for each in (plain, real)):
        return ()
    if plain != real or os.path.dirname(real) != root or not os.path.isdir(real):
        raise CannotRunSafely(
            f"{path} says that the repository is {given}, which lies in the workspace and could be replaced by tool "
            "calls; nothing was started: keep it outside, or in a folder right below the workspace, without a link"
        )
    return (os.path.basename(real),)
