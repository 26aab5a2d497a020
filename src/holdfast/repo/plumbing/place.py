"""Find a user's repository, and read as data the few settings that determine how objects are written."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from holdfast.errors import RepositoryUnfit
from holdfast.repo.base import Owner

ObjectFormat = Literal["sha1", "sha256"]

_POINTER_MAX = 8192
_SHARED = re.compile(r"(?i)umask|group|all|world|everybody|true|false|yes|no|on|off|0?[0-7]{1,4}")


class Place(NamedTuple):
    """Location of a repository. `git_dir` has the HEAD of the given folder, `common` the objects and refs.

    `top` is the folder of files, None for a bare repository.
    """

    top: Path | None
    git_dir: Path
    common: Path

    @property
    def objects(self) -> Path:
        return self.common / "objects"

    @property
    def shallow(self) -> Path:
        return self.common / "shallow"


class Settings(NamedTuple):
    """Relevant settings of a repository. `owner` is set if we are root and another user owns it.

    `remotes` are the push addresses, by name.
    """

    object_format: ObjectFormat = "sha1"
    bare: bool = False
    shared: str = ""
    owner: Owner | None = None
    remotes: Mapping[str, str] = {}


def locate(path: Path) -> Place:
    """Return the repository that contains a folder. Raises `RepositoryUnfit` if there is none.

    This does not run git, which would read configuration, and refuse folders of other users.
    """
    if not path.is_dir():
        raise RepositoryUnfit(f"{path} is not a folder; nothing was changed: name the folder of a git repository")
    here = Path(os.path.realpath(path))
    try:
        for top in (here, *here.parents):
            inside = top / ".git"
            if inside.is_dir():
                return _place(top, inside)
            if inside.is_file():
                return _place(top, _pointed(inside, "gitdir: "))
            if _is_git_dir(top):
                return Place(None, top, _common(top))
    except OSError as error:
        raise RepositoryUnfit(
            f"the repository at {path} cannot be read: {error.strerror}; nothing was changed: make it readable for "
            "this user, or run as its owner"
        ) from None
    raise RepositoryUnfit(
        f"{path} is in no git repository; nothing was changed: make one there (`git init`, then commit once), or name "
        "another folder"
    )


def _place(top: Path, git_dir: Path) -> Place:
    if not _is_git_dir(git_dir):
        raise RepositoryUnfit(
            f"{top} has a .git that leads to no repository ({git_dir}); nothing was changed: run `git worktree repair` "
            "in the repository that it belongs to, or clone it again"
        )
    return Place(top, git_dir, _common(git_dir))


def _is_git_dir(path: Path) -> bool:
    if not (path / "HEAD").is_file() and not (path / "HEAD").is_symlink():
        return False
    common = _common(path)
    return (common / "objects").is_dir() and (common / "refs").is_dir()


def _common(git_dir: Path) -> Path:
    pointer = git_dir / "commondir"
    return _pointed(pointer, "") if pointer.is_file() else git_dir


def _pointed(file: Path, prefix: str) -> Path:
    with file.open("rb") as opened:
        text = os.fsdecode(opened.read(_POINTER_MAX)).rstrip("\r\n")
    if not text.startswith(prefix):
        raise RepositoryUnfit(
            f"{file} does not lead to a repository; nothing was changed: clone the repository again, or name "
            "another one"
        )
    return Path(os.path.realpath(file.parent / text.removeprefix(prefix)))


def read_settings(place: Place, listed: bytes) -> Settings:
    """Parse `git config --list -z` of the repository's own file. Raises `RepositoryUnfit`."""
    values: dict[str, str] = {}
    for item in listed.split(b"\0"):
        key, _, value = item.decode("utf-8", "replace").partition("\n")
        values[key] = value
    if "extensions.partialclone" in values or any(place.objects.glob("pack/*.promisor")):
        raise RepositoryUnfit(
            f"{place.common} is a partial clone, whose missing objects would have to be fetched in the middle of the "
            "work; nothing was changed: clone it again without --filter, and use that"
        )
    kind = values.get("extensions.objectformat", "sha1").lower()
    if kind not in ("sha1", "sha256"):
        raise RepositoryUnfit(
            f"{place.common} names its objects by {kind!r}, which is not understood; nothing was changed: use a "
            "repository with SHA-1 or SHA-256"
        )
    shared = values.get("core.sharedrepository", "")
    return Settings(
        object_format="sha256" if kind == "sha256" else "sha1",
        bare=place.top is None,
        shared=shared if _SHARED.fullmatch(shared) else "",
        owner=_owner(place.objects),
        remotes={
            key.removeprefix("remote.").removesuffix(end): value
            for end in (".url", ".pushurl")  # the latter takes precedence
            for key, value in values.items()
            if key.startswith("remote.") and key.endswith(end)
        },
    )


def _owner(objects: Path) -> Owner | None:
    """Owner of new objects, if not us: as root, git runs as that user, who could not write to the store otherwise."""
    found = os.stat(objects)
    if os.geteuid() != 0 or found.st_uid == 0 or not stat.S_ISDIR(found.st_mode):
        return None
    return Owner(found.st_uid, found.st_gid)
