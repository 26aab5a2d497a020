"""The repository of a workspace: what of it commands may not change, since git on the host runs what it names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import CannotRunSafely
from holdfast.hands.host_files import read_only
from holdfast.hands.launch import Place

GIT = ".git"

_POINTER_MAX = 4096


def protected(workspace: Path) -> tuple[tuple[str, ...], tuple[Place, ...]]:
    """Names in the workspace to be shown read-only, `.git` first; the places that have to be made for that.

    Raises `CannotRunSafely` for a repository that cannot be kept from commands so.
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
    """What is mounted over itself, in that order, and whether it can be written.

    That are those of the files and folders that are there, and that no link leads to: what is elsewhere is not shown
    here. A folder above one of them can be written, and as a mount of its own it cannot be moved away with it. Last
    comes whatever makes programs of the host run code (`host_files`).
    """
    root = os.path.realpath(workspace)
    plain = [name for name in names if _is_plain(root, name)]
    above = {"/".join(parts[:count]) for name in plain for parts in [name.split("/")] for count in range(1, len(parts))}
    out = dict.fromkeys(sorted(above - set(plain)), True)
    return out | dict.fromkeys([*plain, *read_only(root)], False)


def _is_plain(root: str, name: str) -> bool:
    path = os.path.join(root, name)
    return os.path.exists(path) and os.path.realpath(path) == os.path.normpath(path)


def _pointed(workspace: Path, path: Path) -> tuple[str, ...]:
    """The folder that a `gitdir:` file names, when it lies in the workspace itself."""
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
