"""Files of a workspace that make programs of the host run code: editor and agent settings, hooks, repositories.

Names are compared as the most forgiving file system of a user does, so that `.GIT` on Linux counts as what it becomes
on macOS or Windows. Nothing is followed: a link by such a name counts, what it leads to does not.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from typing import NamedTuple

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
"""What makes which kind of program run code, by the plain form of its name."""

BARE = frozenset({"head", "config", "objects", "refs"})
"""A folder that has all of these is a repository to git, whatever its name."""

BARE_KIND = "bare repository"

ENTRIES_MAX = 200_000
"""Entries of a workspace that are looked at; the search then says that it stopped."""

DEPTH_MAX = 200
LISTED_MAX = 1000

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Found(NamedTuple):
    """Paths from the workspace's root with their kinds, in order. `whole` unless the search or the list was cut."""

    kinds: dict[str, str]
    whole: bool


def plain(name: str) -> str:
    """A name as HFS+, APFS and NTFS compare it: without case, invisible characters, and trailing dots and blanks."""
    if name.isascii():
        return name.lower().rstrip(". ").partition("::")[0]
    shown = "".join(char for char in unicodedata.normalize("NFC", name) if unicodedata.category(char) != "Cf")
    return shown.casefold().rstrip(". ").partition("::")[0]


def find(workspace: str) -> Found:
    """Every such file, folder and link in a folder. Blocks; what cannot be read is left out."""
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
        """Depth first by descriptors, so that a folder which is swapped for a link meanwhile is not followed."""
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
        """Note what is right in a folder; the names of folders to look into."""
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
    """The paths to be shown read-only: what stands there now, and no link, but for the root's own `.git`."""
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
