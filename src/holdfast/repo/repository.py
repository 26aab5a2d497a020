"""The interface to a user's repository, for the harness alone (S23, S24). One Protocol and its data types.

Objects go into the repository's own store; beyond that, only refs below `refs/heads/holdfast/` and `refs/holdfast/`
change. No hook, filter, attribute, monitor, merge driver or configuration of the repository or of a working tree takes
effect. Commits are deterministic: the same parents, tree, message and time make the same commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.repo.base import Owner


class Standing(msgspec.Struct, frozen=True):
    """State of a repository: `branch` is the full name of the checked-out one, empty when HEAD is detached.

    `dirty` names the first uncommitted changes, untracked files included; they are never touched.
    """

    head: str
    branch: str
    bare: bool = False
    shallow: bool = False
    submodules: bool = False
    dirty: tuple[str, ...] = ()


class Commit(msgspec.Struct, frozen=True):
    """A commit and its tree, as hex names. `left_out` are paths that were not committed because of their names."""

    commit: str
    tree: str
    left_out: tuple[str, ...] = ()


class Conflict(msgspec.Struct, frozen=True):
    """Two sides that cannot be merged, and the paths in conflict."""

    paths: tuple[str, ...]


class FileChange(msgspec.Struct, frozen=True):
    """One path that differs between two trees. `mode` is the new one (`100644`, `100755`, `120000`), or empty."""

    path: str
    kind: Literal["added", "removed", "changed"]
    mode: str = ""
    lines_added: int = 0
    lines_removed: int = 0


class Kept(NamedTuple):
    """Globs of paths to keep as in a commit, and that commit."""

    commit: str
    globs: tuple[str, ...]


class Repository(Protocol):
    """One repository of a user. Every verb raises `RepositoryUnfit`, which names the problem and what is safe."""

    async def look(self) -> Standing:
        """Read the state. Raises `RepositoryUnfit` for a folder that is not a repository, or one without a commit."""
        ...

    async def resolve(self, name: str) -> Commit | None:
        """Return the commit that a ref or a name leads to, None if there is none."""
        ...

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        """Write a commit's files into an empty folder, without `.git`; with `user`, owned by them."""
        ...

    async def commit(
        self,
        folder: Path,
        parents: Sequence[str],
        message: str,
        at_us: int,
        *,
        user: Owner | None = None,
        kept: Sequence[Kept] = (),
    ) -> Commit:
        """Commit the files of a folder as data; the same tree as its only parent's gives that parent.

        `parents` are full names.

        The commit leaves out paths that `.gitignore` of the first parent's tree ignores, unless that tree has them
        already; the usual by-products (`BY_PRODUCTS`), unless `.gitignore` re-includes them; entries that are not files
        or links, or are named `.git`; and other users' files that `user` could not read. A submodule stays as it was.
        Paths in `kept` are as in its commit, whatever the folder has. Names that only other systems take for `.git`,
        such as `.GIT` and `git~1`, are listed in `left_out` as well.
        """
        ...

    async def write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        """Commit these files, by path, and no others; the same tree as its only parent's gives that parent."""
        ...

    async def graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        """Return the tree of `commit`, with every path that matches the globs `paths` as in the commit `onto` (S25)."""
        ...

    async def overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        """Return the tree of `commit` with these files, by path; None removes a path."""
        ...

    async def merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        """Merge two commits; returns a merge commit, or `onto` if it contains `branch` already."""
        ...

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """Move a ref from `old` to `new`; False if it is elsewhere. None for `old` means that it must not exist.

        A ref at `new` was already moved before a crash; the result is True, whatever `old` is (S23). Raises
        `RepositoryUnfit` for a ref outside `refs/heads/holdfast/` and `refs/holdfast/`, and for a branch that is
        checked out somewhere.
        """
        ...

    async def changes(self, before: str, after: str) -> list[FileChange]:
        """Differences between two commits or trees, ordered by path; a rename is one removed and one added."""
        ...

    async def files(self, commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        """Return the regular files of a commit or tree whose paths match any of the globs; without globs, all. Links
        are left out. Raises `RepositoryUnfit` for more than 64 MB.
        """
        ...

    async def diff(self, before: str, after: str, *, max_bytes: int = 200_000) -> str:
        """Return a unified diff as text for a reader; a diff cut at `max_bytes` says so."""
        ...

    async def history(self, commit: str, limit: int = 20) -> list[str]:
        """Return the first lines of the latest commits on the first-parent line, each with its short name."""
        ...


class Refs(Protocol):
    """The refs of ours in a user's repository, to be cleared away. Raises as `Repository`."""

    async def refs_below(self, below: str) -> dict[str, str]:
        """Return the refs below one of ours, such as `refs/holdfast/m/`, with their commits."""
        ...

    async def leads(self, commit: str, but: Collection[str]) -> bool:
        """Return True if a ref other than those in `but` leads to a commit."""
        ...

    async def drop(self, ref: str, old: str) -> bool:
        """Delete a ref of ours that is at `old`; False if it is elsewhere. One that is gone was deleted before.

        Raises `RepositoryUnfit` for other refs, and for a branch that is checked out somewhere.
        """
        ...
