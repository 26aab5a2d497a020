"""A repository in memory, for the simulator and for tests: objects have the same names as in git.

It supports regular files only, no links, executables or submodules, and follows no renames in merges.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.errors import RepositoryUnfit
from holdfast.repo.base import Owner, shown
from holdfast.repo.fake import Folder
from holdfast.repo.plumbing import IDENTITY
from holdfast.repo.plumbing.ignore import BY_PRODUCTS, NAME, Ignoring
from holdfast.repo.plumbing.objects import (
    FILE,
    MAX_FILES_BYTES,
    Entries,
    Entry,
    chosen,
    commit_bytes,
    grafted,
    is_git_name,
    is_plain_path,
    object_id,
    overlaid,
    trees,
)
from holdfast.repo.plumbing.refs import check_ref, checked_out, is_hex
from holdfast.repo.repository import Commit, Conflict, FileChange, Kept, Standing

_Tree = Mapping[bytes, Entry]


class _Made(NamedTuple):
    tree: str
    parents: tuple[str, ...]
    message: str


class FakeRepository:
    """A repository whose commits are read from, and written to, `folders`; without them, folders on the disk.

    `seed` makes its first commits, as a user would. `branch` is checked out; `dirty` and `held` (refs that are checked
    out elsewhere) are for a test to set.
    """

    def __init__(self, folders: MutableMapping[Path, Folder] | None = None, *, branch: str = "refs/heads/main") -> None:
        self.refs: dict[str, str] = {}
        self.branch = branch
        self.dirty: tuple[str, ...] = ()
        self.held: set[str] = set()
        self._folders = folders
        self._blobs: dict[str, bytes] = {}
        self._trees: dict[str, _Tree] = {}
        self._commits: dict[str, _Made] = {}
        self._keep({})  # every repository has the empty tree

    def seed(self, files: Mapping[str, bytes], message: str = "a person's", *, ref: str = "", at_us: int = 0) -> Commit:
        """Commit these files, and no others, on a ref (default: the checked-out branch), as a user would."""
        ref = ref or self.branch
        parents = (self.refs[ref],) if ref in self.refs else ()
        tree = self._keep({path.encode(): self._blob(data) for path, data in files.items()})
        made = self._made(tree, parents, message, at_us)
        self.refs[ref] = made.commit
        return made

    async def look(self) -> Standing:
        """See `Repository.look`."""
        if self.branch not in self.refs:
            raise RepositoryUnfit(
                f"this is a git repository without a commit on {self.branch}; nothing was changed: commit once "
                "(`git add -A && git commit`), then try again"
            )
        return Standing(self.refs[self.branch], self.branch, dirty=self.dirty)

    async def resolve(self, name: str) -> Commit | None:
        """See `Repository.resolve`. Supports only names of refs, and of commits, also shortened."""
        for ref in (name, f"refs/{name}", f"refs/tags/{name}", f"refs/heads/{name}", f"refs/remotes/{name}"):
            if ref in self.refs:
                return self._commit_of(self.refs[ref])
        if name == "HEAD" and self.branch in self.refs:
            return self._commit_of(self.refs[self.branch])
        fitting = [each for each in self._commits if len(name) >= 4 and each.startswith(name)]
        return self._commit_of(fitting[0]) if len(fitting) == 1 else None

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        """See `Repository.checkout`."""
        files = {shown(path): self._blobs[entry.id] for path, entry in self._entries(commit).items()}
        there = self._folders.get(folder) if self._folders is not None else folder.is_dir() and any(folder.iterdir())
        if there:
            raise RepositoryUnfit(
                f"{folder} is not empty, and a commit is written into an empty folder only; nothing was changed: name "
                "another folder"
            )
        if self._folders is not None:
            self._folders.setdefault(folder, {}).update(files)
            return
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)

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
        before = self._entries(parents[0]) if parents else {}
        rules = chosen(before, ())
        ignoring = Ignoring(
            {path: self._blobs[entry.id] for path, entry in rules.items() if path.rpartition(b"/")[2] == NAME},
            BY_PRODUCTS,
        )
        after = {
            path.encode(): self._blob(data)
            for path, data in self._read(folder).items()
            if is_plain_path(path.encode())
            and (path.encode() in before or not ignoring.leaves_out_below(path.encode()))
        }
        for commit, globs in kept:
            after = grafted(after, self._entries(commit), globs)
        left_out = tuple(dict.fromkeys(path for path in map(_odd, sorted(self._read(folder))) if path))
        tree = self._keep(after)
        if len(parents) == 1 and tree == self._tree(parents[0]):
            return Commit(parents[0], tree, left_out)
        return msgspec.structs.replace(self._made(tree, tuple(parents), message, at_us), left_out=left_out)

    async def write(self, files: Mapping[str, bytes], parents: Sequence[str], message: str, at_us: int) -> Commit:
        """See `Repository.write`."""
        tree = self._keep({path.encode(): self._blob(data) for path, data in files.items()})
        if len(parents) == 1 and tree == self._tree(parents[0]):
            return Commit(parents[0], tree)
        return self._made(tree, tuple(parents), message, at_us)

    async def graft(self, commit: str, onto: str, paths: Sequence[str]) -> str:
        """See `Repository.graft`."""
        return self._keep(grafted(self._entries(commit), self._entries(onto), paths))

    async def overlay(self, commit: str, files: Mapping[str, bytes | None]) -> str:
        """See `Repository.overlay`."""
        added = {path: self._blob(data).id for path, data in files.items() if data is not None}
        return self._keep(overlaid(self._entries(commit), added, files))

    async def merge(self, onto: str, branch: str, message: str, at_us: int) -> Commit | Conflict:
        """See `Repository.merge`. Merges line by line, from one of the latest common commits."""
        above = self._line(onto)
        if branch in above:
            return self._commit_of(onto)
        common = [each for each in self._line(branch) if each in above]
        if not common:
            raise RepositoryUnfit(
                f"merging {branch[:12]} into {onto[:12]} was not possible: refusing to merge unrelated histories; no "
                "ref was changed: name commits that have a common one"
            )
        latest = next(each for each in common if not any(each in self._line(other)[1:] for other in common))
        merged, paths = merge_entries(
            self._entries(latest), self._entries(onto), self._entries(branch), self._blobs, self._blob
        )
        if paths:
            return Conflict(tuple(sorted(shown(path) for path in paths)))
        return self._made(self._keep(merged), (onto, branch), message, at_us)

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """See `Repository.point`."""
        check_ref(ref, new, old)
        if new not in self._commits:
            raise RepositoryUnfit(f"moving {ref} was not possible: {new} is no commit here; no ref was changed")
        if self.refs.get(ref) == new:
            return True
        if self.refs.get(ref) != old:
            return False
        if ref in self.held | {self.branch}:
            raise checked_out(ref, "a worktree")
        self.refs[ref] = new
        return True

    async def changes(self, before: str, after: str) -> list[FileChange]:
        """See `Repository.changes`."""
        old, new = self._entries(before), self._entries(after)
        out = []
        for path in sorted(old.keys() | new.keys()):
            was, now = old.get(path), new.get(path)
            if was == now:
                continue
            kind = "changed" if was and now else "added" if now else "removed"
            added, removed = _counted(self._text(was), self._text(now))
            out.append(FileChange(shown(path), kind, "100644" if now else "", added, removed))  # type: ignore[arg-type]
        return out

    async def files(self, commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        """See `Repository.files`."""
        found = {shown(path): self._blobs[each.id] for path, each in chosen(self._entries(commit), paths).items()}
        if sum(map(len, found.values())) > MAX_FILES_BYTES:
            raise RepositoryUnfit(
                f"the files that were asked for have more than {MAX_FILES_BYTES:,} bytes together; nothing was "
                "changed: ask for fewer"
            )
        return found

    async def diff(self, before: str, after: str, *, max_bytes: int = 200_000) -> str:
        """See `Repository.diff`."""
        old, new = self._entries(before), self._entries(after)
        out: list[str] = []
        for path in sorted(old.keys() | new.keys()):
            if old.get(path) != new.get(path):
                name = shown(path)
                lines = [self._text(side.get(path)).decode("utf-8", "replace").splitlines() for side in (old, new)]
                out += [f"diff --git a/{name} b/{name}"]
                out += difflib.unified_diff(lines[0], lines[1], f"a/{name}", f"b/{name}", lineterm="")
        data = "".join([f"{line}\n" for line in out]).encode()
        if len(data) <= max_bytes:
            return data.decode()
        kept = data[:max_bytes].decode("utf-8", "ignore")
        return f"{kept}\n[the diff goes on; these are its first {max_bytes:,} bytes]\n"

    async def history(self, commit: str, limit: int = 20) -> list[str]:
        """See `Repository.history`."""
        out: list[str] = []
        at: str | None = self._commit_of(commit).commit
        while at and len(out) < limit:
            made = self._commits[at]
            out.append(f"{at[:7]} {made.message.strip().partition(chr(10))[0]}")
            at = made.parents[0] if made.parents else None
        return out

    def _read(self, folder: Path) -> Mapping[str, bytes]:
        if self._folders is not None and folder in self._folders:
            return self._folders[folder]
        if self._folders is not None or not folder.is_dir():
            raise RepositoryUnfit(
                f"the folder {folder} cannot be opened: there is none; nothing was committed: see that it is there and "
                "readable"
            )
        found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    def _blob(self, data: bytes) -> Entry:
        name = object_id("sha1", "blob", data)
        self._blobs[name] = data
        return Entry(FILE, name)

    def _text(self, entry: Entry | None) -> bytes:
        return self._blobs[entry.id] if entry else b""

    def _keep(self, entries: _Tree) -> str:
        name = trees("sha1", entries)[0]
        self._trees[name] = dict(entries)
        return name

    def _made(self, tree: str, parents: tuple[str, ...], message: str, at_us: int) -> Commit:
        name = object_id("sha1", "commit", commit_bytes(tree, parents, message, at_us, IDENTITY))
        self._commits[name] = _Made(tree, parents, message)
        return Commit(name, tree)

    def _commit_of(self, name: str) -> Commit:
        if name not in self._commits:
            raise _not_there(name)
        return Commit(name, self._commits[name].tree)

    def _tree(self, name: str) -> str:
        return name if name in self._trees and is_hex(name) else self._commit_of(name).tree

    def _entries(self, name: str) -> _Tree:
        return self._trees[self._tree(name)]

    def _line(self, commit: str) -> list[str]:
        """Return a commit and all its ancestors, nearest first."""
        out = [self._commit_of(commit).commit]
        for each in out:
            out += [parent for parent in self._commits[each].parents if parent not in out]
        return out


def _not_there(name: str) -> RepositoryUnfit:
    return RepositoryUnfit(
        f"reading the commit {name[:12]} was not possible: it is not there; no ref was changed: name another commit"
    )


def _odd(path: str) -> str:
    """Return the part of the path up to a name that only other systems take for `.git`; empty if there is none."""
    parts = path.split("/")
    for index, part in enumerate(parts):
        if is_git_name(part.encode()):
            return "" if part == ".git" else "/".join(parts[: index + 1])
    return ""


def _counted(old: bytes, new: bytes) -> tuple[int, int]:
    """Count added and removed lines; zero for binary files."""
    if b"\0" in old[:8000] or b"\0" in new[:8000]:
        return 0, 0
    steps = difflib.SequenceMatcher(None, old.splitlines(True), new.splitlines(True), autojunk=False).get_opcodes()
    changed = [step for step in steps if step[0] != "equal"]
    return sum(step[4] - step[3] for step in changed), sum(step[2] - step[1] for step in changed)


def merge_entries(
    base: Entries, ours: Entries, theirs: Entries, blobs: Mapping[str, bytes], keep: Callable[[bytes], Entry]
) -> tuple[dict[bytes, Entry], list[bytes]]:
    """Return the merged tree, and the paths in conflict."""
    out: dict[bytes, Entry] = {}
    conflicts: list[bytes] = []
    for path in sorted(base.keys() | ours.keys() | theirs.keys()):
        was, mine, other = base.get(path), ours.get(path), theirs.get(path)
        if mine == other or other == was:
            result = mine
        elif mine == was:
            result = other
        else:
            merged = was and mine and other and merge_lines(blobs[was.id], blobs[mine.id], blobs[other.id])
            result = keep(merged) if isinstance(merged, bytes) else None
            if result is None:
                conflicts.append(path)
        if result is not None:
            out[path] = result
    return out, conflicts + [path for path in out if any(each.startswith(path + b"/") for each in out)]


def merge_lines(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return a text with both sides' changes, None if they touch each other or it is not text."""
    if any(b"\0" in side[:8000] for side in (base, ours, theirs)):
        return None
    lines = [side.splitlines(keepends=True) for side in (base, ours, theirs)]
    out: list[bytes] = []
    at = (0, 0, 0)
    for start, length in _unchanged(*lines):
        piece = _piece([side[begin:end] for side, begin, end in zip(lines, at, start, strict=True)])
        if piece is None:
            return None
        out += piece
        out += lines[0][start[0] : start[0] + length]
        at = (start[0] + length, start[1] + length, start[2] + length)
    return b"".join(out)


def _piece(sides: list[list[bytes]]) -> list[bytes] | None:
    was, mine, other = sides
    if mine == other or other == was:
        return mine
    return other if mine == was else None


def _unchanged(
    base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]
) -> list[tuple[tuple[int, int, int], int]]:
    """Return the runs of lines common to all three, with their positions in each; the end last."""
    mine = difflib.SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    other = difflib.SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    out: list[tuple[tuple[int, int, int], int]] = []
    left = right = 0
    while left < len(mine) and right < len(other):
        one, two = mine[left], other[right]
        start, end = max(one.a, two.a), min(one.a + one.size, two.a + two.size)
        if start < end:
            out.append(((start, one.b + start - one.a, two.b + start - two.a), end - start))
        if one.a + one.size < two.a + two.size:
            left += 1
        else:
            right += 1
    return [*out, ((len(base), len(ours), len(theirs)), 0)]
