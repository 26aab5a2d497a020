"""The real implementation for a user's repository: git's plumbing on its objects, and refs below our names (S23, S24).

Killed at any point, it leaves only unreferenced objects, or a ref at its old or its new commit: objects are synced
before a ref names them, and repeated work makes the same objects.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from holdfast.errors import RepositoryUnfit, StorageFull
from holdfast.repo.base import Owner, shown
from holdfast.repo.plumbing import IDENTITY, Failed, Plumbing
from holdfast.repo.plumbing.folder import Reading, order, write_folder
from holdfast.repo.plumbing.ignore import BY_PRODUCTS, NAME, Ignoring
from holdfast.repo.plumbing.objects import (
    FILE,
    MAX_FILES_BYTES,
    Entry,
    Pack,
    chosen,
    commit_bytes,
    contents,
    grafted,
    overlaid,
    read_blobs,
    read_changes,
    read_tree,
    trees,
)
from holdfast.repo.plumbing.refs import drop, is_hex, leads, list_refs, object_of, point, stand
from holdfast.repo.repository import Commit, Conflict, FileChange, Kept, Standing

LOOSE = 100
"""More new objects than this go into the store as one pack, as `git fetch` would put them."""

COMMITS_KEPT = 4096
"""Maximum number of commits whose trees are cached."""

_TREE_OF: dict[tuple[Path, str], str] = {}
"""The tree of each commit by repository and name: a name identifies its content, so an entry is never stale."""

T = TypeVar("T")


class GitRepository:
    """The repository that contains `path`. `state_folder` is ours: it holds git directories without objects.

    Several may be open at once, in several processes. As root, git works as the owner of the repository's objects, so
    that its owner can go on using it. `git` is the path of git; the default is to search for it.
    """

    def __init__(self, path: Path | str, state_folder: Path, *, git: Path | None = None) -> None:
        self._git = Plumbing(Path(path), state_folder, git)

    async def look(self) -> Standing:
        """See `Repository.look`."""
        return await self._work(partial(stand, self._git))

    async def resolve(self, name: str) -> Commit | None:
        """See `Repository.resolve`."""
        return await self._work(partial(self._resolve, name))

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        """See `Repository.checkout`. Also accepts a tree; a submodule becomes an empty folder."""
        await self._work(partial(self._checkout, commit, folder, user))

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
        """See `Repository.commit`."""
        return await self._work(partial(self._commit, folder, parents, message, at_us, user, kept))

    async def write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        """See `Repository.write`."""
        return await self._work(partial(self._write, files, tuple(parents), message, at_us))

    async def graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        """See `Repository.graft`."""
        return await self._work(partial(self._graft, commit, onto, paths))

    async def overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        """See `Repository.overlay`."""
        return await self._work(partial(self._overlay, commit, files))

    async def merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        """See `Repository.merge`. Follows renames with git's defaults."""
        return await self._work(partial(self._merge, onto, branch, message, at_us))

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """See `Repository.point`."""
        return await self._work(partial(point, self._git, ref, new, old))

    async def refs_below(self, below: str) -> dict[str, str]:
        """See `Refs.refs_below`."""
        return await self._work(partial(list_refs, self._git, below))

    async def leads(self, commit: str, but: Collection[str]) -> bool:
        """See `Refs.leads`."""
        return await self._work(partial(leads, self._git, commit, but))

    async def drop(self, ref: str, old: str) -> bool:
        """See `Refs.drop`."""
        return await self._work(partial(drop, self._git, ref, old))

    async def changes(self, before: str, after: str) -> list[FileChange]:
        """See `Repository.changes`."""
        return await self._work(partial(self._changes, before, after))

    async def files(self, commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        """See `Repository.files`."""
        return await self._work(partial(self._files, commit, paths))

    async def diff(self, before: str, after: str, *, max_bytes: int = 200_000) -> str:
        """See `Repository.diff`."""
        return await self._work(partial(self._diff, before, after, max_bytes))

    async def history(self, commit: str, limit: int = 20) -> list[str]:
        """See `Repository.history`."""
        return await self._work(partial(self._history, commit, limit))

    async def _work(self, work: Callable[[], T]) -> T:
        # Awaited even after a cancellation: half a checkout must not continue unattended.
        return await anyio.to_thread.run_sync(partial(_with_sentences, self._git, work))

    def _resolve(self, name: str) -> Commit | None:
        found = object_of(self._git, name)
        if found is None:
            return None
        status, out = self._git.run("rev-parse", "--verify", "--quiet", f"{found}^{{commit}}", also=(1, 128))
        if status:
            return None
        commit = out.decode().strip()
        return Commit(commit, self._tree(commit))

    def _tree(self, name: str) -> str:
        """Return the tree of a commit, or the tree itself. Raises `RepositoryUnfit`."""
        if not is_hex(name):
            raise RepositoryUnfit(
                f"{name[:100]!r} is not the whole name of a commit in {self._git.path}; nothing was changed: resolve "
                "it first"
            )
        key = (self._git.path, name)
        tree = _TREE_OF.get(key)
        if tree is None:
            what = f"reading the commit {name[:12]}"
            out = self._git.need(what, "rev-parse", "--verify", "--quiet", f"{name}^{{tree}}")
            if len(_TREE_OF) >= COMMITS_KEPT:
                _TREE_OF.clear()
            _TREE_OF[key] = tree = out.decode().strip()
        return tree

    def _entries(self, name: str) -> dict[bytes, Entry]:
        return read_tree(self._git, self._tree(name))

    def _checkout(self, commit: str, folder: Path, user: Owner | None) -> None:
        entries = self._entries(commit)
        with contents(self._git, order(entries)) as blobs:
            write_folder(folder, entries, blobs, user)

    def _commit(
        self,
        folder: Path,
        parents: Sequence[str],
        message: str,
        at_us: int,
        user: Owner | None,
        kept: Sequence[Kept],
    ) -> Commit:
        known = [self._tree(parent) for parent in parents]
        before = read_tree(self._git, known[0]) if known else {}
        rules = {path: entry for path, entry in chosen(before, ()).items() if path.rpartition(b"/")[2] == NAME}
        ignoring = Ignoring(read_blobs(self._git, rules, MAX_FILES_BYTES) if rules else {}, BY_PRODUCTS)
        with self._pack(before) as pack:
            reading = Reading(pack, before, ignoring, user)
            after, left_out = reading.run(folder), tuple(reading.left_out)
            for commit, globs in kept:
                after = grafted(after, self._entries(commit), globs)
            tree = self._put_trees(pack, known[0] if known else "", before, after)
            if len(parents) == 1 and tree == known[0]:
                return Commit(parents[0], tree, left_out)
            made = pack.add("commit", commit_bytes(tree, parents, message, at_us, IDENTITY))
            self._store(pack)
        return Commit(made, tree, left_out)

    def _write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        known = [self._tree(parent) for parent in parents]
        with self._pack({}) as pack:
            after = {path.encode(): Entry(FILE, pack.add("blob", data)) for path, data in files.items()}
            tree = self._put_trees(pack, "", {}, after)
            if len(parents) == 1 and tree == known[0]:
                return Commit(parents[0], tree)
            commit = pack.add("commit", commit_bytes(tree, parents, message, at_us, IDENTITY))
            self._store(pack)
        return Commit(commit, tree)

    @contextmanager
    def _pack(self, before: dict[bytes, Entry]) -> Iterator[Pack]:
        """Open a pack that leaves out the files that the repository has in that tree."""
        known = {entry.id for entry in before.values()}
        with closing(Pack(self._git.scratch(), self._git.settings.object_format, known)) as pack:
            yield pack

    def _put_trees(self, pack: Pack, base: str, before: dict[bytes, Entry], after: dict[bytes, Entry]) -> str:
        """Add the folders of `after` that are not in the tree `base`, which holds `before`. Returns the root."""
        form = self._git.settings.object_format
        name, there = trees(form, before)
        if name != base:  # not written as git writes it now: none of its folders can be relied on
            there = {}
        top, made = trees(form, after)
        for name, data in made.items():
            if name not in there:
                pack.add("tree", data)
        return top

    def _store(self, pack: Pack) -> None:
        """Write the pack into the repository, synced when this returns."""
        if not pack.count:
            return
        how = ("unpack-objects", "-q") if pack.count <= LOOSE else ("index-pack", "--stdin")
        self._git.need("writing objects", *how, stdin=pack.finish())

    def _graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        base = self._tree(commit)
        entries, pristine = read_tree(self._git, base), self._entries(onto)
        result = grafted(entries, pristine, paths)
        with self._pack(entries) as pack:
            tree = self._put_trees(pack, base, entries, result)
            self._store(pack)
        return tree

    def _overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        base = self._tree(commit)
        entries = read_tree(self._git, base)
        with self._pack(entries) as pack:
            added = {path: pack.add("blob", data) for path, data in files.items() if data is not None}
            tree = self._put_trees(pack, base, entries, overlaid(entries, added, files))
            self._store(pack)
        return tree

    def _merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        if not is_hex(onto) or not is_hex(branch):
            raise RepositoryUnfit(
                f"only commits by their whole names are merged in {self._git.path}; nothing was changed"
            )
        try:
            status, _ = self._git.run("merge-base", "--is-ancestor", branch, onto, also=(1,))
            if status == 0:
                return Commit(onto, self._tree(onto))
            status, out = self._git.run(
                "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", onto, branch, also=(1,)
            )
        except Failed as error:
            raise self._git.unfit(f"merging {branch[:12]} into {onto[:12]}", error.said) from None
        tree, *names = out.split(b"\0")
        if status:
            return Conflict(tuple(sorted({_named(name, (onto, branch)) for name in names if name})) or (".",))
        name = tree.decode()
        data = commit_bytes(name, (onto, branch), message, at_us, IDENTITY)
        with self._pack({}) as pack:
            commit = pack.add("commit", data)
            self._store(pack)
        return Commit(commit, name)

    def _changes(self, before: str, after: str) -> list[FileChange]:
        out = self._git.need(
            "comparing two trees",
            *("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"),
            *(self._tree(before), self._tree(after)),
        )
        return read_changes(out)

    def _files(self, commit: str, paths: Sequence[str]) -> dict[str, bytes]:
        wanted = chosen(self._entries(commit), paths)
        return {shown(path): data for path, data in read_blobs(self._git, wanted, MAX_FILES_BYTES).items()}

    def _diff(self, before: str, after: str, max_bytes: int) -> str:
        arguments = ("diff-tree", "-r", "-p", "--no-color", "--no-renames", "--no-ext-diff", "--no-textconv")
        with self._git.start((*arguments, self._tree(before), self._tree(after))) as process:
            assert process.stdout is not None
            data = process.stdout.read(max_bytes + 1)
            if len(data) <= max_bytes:
                if process.wait():
                    raise self._git.unfit("comparing two trees", "one of them is damaged")
                return data.decode("utf-8", "backslashreplace")
        kept = data[:max_bytes].decode("utf-8", "ignore")
        return f"{kept}\n[the diff goes on; these are its first {max_bytes:,} bytes]\n"

    def _history(self, commit: str, limit: int) -> list[str]:
        out = self._git.need(
            f"reading the history of {commit[:12]}",
            *("log", "--first-parent", f"--max-count={max(limit, 0)}", "--no-color", "--no-decorate"),
            *("--no-show-signature", "--no-mailmap", "--encoding=UTF-8", "--format=%h %s", "-z"),
            *(self._tree_checked(commit),),
        )
        return [line.decode("utf-8", "backslashreplace") for line in out.split(b"\0") if line]

    def _tree_checked(self, commit: str) -> str:
        self._tree(commit)
        return commit


def _named(path: bytes, sides: tuple[str, str]) -> str:
    """Return a path as it is on both sides: git adds a side's name where a file and a folder have the same path."""
    for side in sides:
        path = path.removesuffix(b"~" + side.encode())
    return shown(path)


def _with_sentences(git: Plumbing, work: Callable[[], T]) -> T:
    try:
        return work()
    except Failed as error:
        raise git.unfit("what was asked for", error.said) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                "the disk took no more bytes while a commit was made; no ref was changed: free some space, then try "
                "again"
            ) from None
        raise RepositoryUnfit(
            f"{git.path} could not be worked on: {os.strerror(error.errno or 0)} ({error.filename or 'no file'}); no "
            "ref was changed: mend that and try again"
        ) from None
