"""The door to a user's repository: what the harness alone does there (S23, S24). One Protocol and its shapes.

Objects go into the repository's own store; nothing else of it is touched but refs below `refs/heads/holdfast/` and
`refs/holdfast/`. No hook, filter, attribute, monitor, merge driver or configuration of the repository or of a working
tree is honoured. Commits are deterministic: the same parents, tree, message and time make the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.repo.base import Owner


class Standing(msgspec.Struct, frozen=True):
    """State of a repository: `branch` is the full name of the checked-out one, empty when HEAD is detached.

    `dirty` names the first changes that nobody committed, untracked files included; they are never touched.
    """

    head: str
    branch: str
    bare: bool = False
    shallow: bool = False
    submodules: bool = False
    dirty: tuple[str, ...] = ()


class Commit(msgspec.Struct, frozen=True):
    """A commit and its tree, as hex names. `left_out` are paths that were not committed for their names."""

    commit: str
    tree: str
    left_out: tuple[str, ...] = ()


class Conflict(msgspec.Struct, frozen=True):
    """Two sides that do not merge, and where."""

    paths: tuple[str, ...]


class FileChange(msgspec.Struct, frozen=True):
    """One path that differs between two trees. `mode` is the new one (`100644`, `100755`, `120000`), or empty."""

    path: str
    kind: Literal["added", "removed", "changed"]
    mode: str = ""
    lines_added: int = 0
    lines_removed: int = 0


class Kept(NamedTuple):
    """Globs of what is to be as in a commit, and that commit."""

    commit: str
    globs: tuple[str, ...]


class Repository(Protocol):
    """One repository of a user. Every verb raises `RepositoryUnfit` with what is wrong and what is safe."""

    async def look(self) -> Standing:
        """Read the state. Raises `RepositoryUnfit` for a folder that is not a repository, or one without a commit."""
        ...

    async def resolve(self, name: str) -> Commit | None:
        """The commit that a ref or a name leads to, None when there is none."""
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

        `parents` are whole names.

        What `.gitignore` of the first parent's tree names is left out, unless it is in that tree already; so are the
        usual by-products (`BY_PRODUCTS`), where `.gitignore` does not want them, what is no file or link, what is
        called `.git`, and what is another user's and `user` could not read. A submodule stays as it was. What `kept`
        names is as it is there, whatever the folder has. Names that only other systems take for `.git`, such as `.GIT`
        and `git~1`, are in `left_out` besides.
        """
        ...

    async def write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        """Commit these files, by path, and no others; the same tree as its only parent's gives that parent."""
        ...

    async def graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        """The tree of `commit`, with everything that matches the globs `paths` as it is in the commit `onto` (S25)."""
        ...

    async def overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        """The tree of `commit` with these files as they are here, by path; None for one that is not there."""
        ...

    async def merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        """Merge two commits; always a merge commit, unless `branch` is in `onto` already, which then is the answer."""
        ...

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """Move a ref from `old` to `new`; False when it is elsewhere. None for `old` means that it must not exist.

        A ref that is at `new` already was moved before a crash, and is answered True, whatever `old` is (S23).
        Raises `RepositoryUnfit` for a ref outside `refs/heads/holdfast/` and `refs/holdfast/`, and for a branch that is
        checked out somewhere.
        """
        ...

    async def changes(self, before: str, after: str) -> list[FileChange]:
        """Differences between two commits or trees, ordered by path; a rename is one removed and one added."""
        ...

    async def files(self, commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        """The regular files of a commit or tree whose paths match any of the globs, all without any. Links are left
        out. Raises `RepositoryUnfit` for more than 64 MB.
        """
        ...

    async def diff(self, before: str, after: str, *, max_bytes: int = 200_000) -> str:
        """A unified diff as text for a reader; cut at `max_bytes`, which it says."""
        ...

    async def history(self, commit: str, limit: int = 20) -> list[str]:
        """The first lines of the latest commits on the first-parent line, each with its short name."""
        ...
