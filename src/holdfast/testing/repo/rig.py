"""The rig that a repository under test implements, and helpers for writing checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from holdfast.errors import RepositoryUnfit
from holdfast.repo.repository import Commit, Repository

LINES = b"".join([b"line %d\n" % number for number in range(20)])
START = {
    ".gitignore": b"*.log\nbuild/\n!keep.log\n",
    "README.md": b"Hello.\n",
    "src/a.py": LINES,
    "src/deep/b.py": b"B = 1\n",
    "tests/test_a.py": b"def test_a() -> None: ...\n",
    "tracked.log": b"in the tree, though its name is left out\n",
}
"""The files of the first commit, on the checked-out branch."""

AT_US = 1_700_000_000_000_000
"""The time of all commits."""

MAIN = "refs/heads/holdfast/m/main"
"""A ref in Holdfast's namespace."""


class RepositoryRig(Protocol):
    """A repository with one commit of `START` on `refs/heads/main`, and folders that it can read."""

    @property
    def repository(self) -> Repository:
        """The door under test."""
        ...

    def folder(self, name: str) -> Path:
        """The path of a folder; `write` makes it."""
        ...

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write files by relative path, with their parent folders."""
        ...

    def remove(self, folder: Path, path: str) -> None:
        """Remove a file."""
        ...

    def read(self, folder: Path) -> dict[str, bytes]:
        """All files of the folder by relative path."""
        ...

    def occupy(self, ref: str) -> None:
        """Check out that branch in another worktree."""
        ...


RepositoryCheck = Callable[[RepositoryRig], Awaitable[None]]


async def unfit(attempt: Awaitable[object]) -> str:
    """Assert that `attempt` raises `RepositoryUnfit` with a next step; return the message."""
    said: str | None = None
    try:
        await attempt
    except RepositoryUnfit as error:
        said = str(error)
    assert said is not None, "RepositoryUnfit was expected and nothing was raised"
    assert ":" in said, f"RepositoryUnfit does not say what to do: {said}"
    return said


async def start_of(rig: RepositoryRig) -> Commit:
    """Return the first commit."""
    found = await rig.repository.resolve("refs/heads/main")
    assert found is not None, "the rig has no refs/heads/main"
    return found


async def branch_of(
    rig: RepositoryRig, base: str, name: str, files: Mapping[str, bytes], removed: tuple[str, ...] = ()
) -> Commit:
    """Make a commit on `base` that writes some files and removes others."""
    folder = rig.folder(name)
    await rig.repository.checkout(base, folder)
    rig.write(folder, files)
    for path in removed:
        rig.remove(folder, path)
    return await rig.repository.commit(folder, (base,), f"{name}\n\nthe body", AT_US)
