"""A snapshot store in memory, for folders in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, MutableMapping
from difflib import unified_diff
from pathlib import Path

from holdfast.errors import SnapshotFailed
from holdfast.repo.base import Change, Kept, Owner, Restored, no_file
from holdfast.repo.plumbing.ignore import NAME, Ignoring

Folder = MutableMapping[str, bytes]
"""A folder in memory: path from its root → content."""


def _name(tree: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, data in sorted(tree.items()):
        for part in (path.encode(), data):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
    return digest.hexdigest()


class FakeShelf:
    """Keeps the contents of `folders`, which other code writes to. It supports only files, and no owners."""

    def __init__(self, folders: MutableMapping[Path, Folder]) -> None:
        self.folders = folders
        self._trees: dict[str, dict[str, bytes]] = {}
        self._kept: dict[str, dict[str, None]] = {}

    async def keep(self, session_id: str, folder: Path, seq: int, *, user: Owner | None = None) -> Kept:
        """See `Shelf.keep`."""
        if folder not in self.folders:
            raise SnapshotFailed(f"the workspace {folder} cannot be opened: there is none; nothing was changed")
        tree = {path: data for path, data in self.folders[folder].items() if ".git" not in path.split("/")}
        name = _name(tree)
        self._trees[name] = tree
        kept = self._kept.setdefault(session_id, {})
        kept.pop(name, None)
        kept[name] = None
        return Kept(name, len(tree), sum(map(len, tree.values())), read=len(tree))

    async def restore(self, snapshot: str, folder: Path, *, user: Owner | None = None) -> Restored:
        """See `Shelf.restore`."""
        tree = self._tree(snapshot)
        if self.folders.get(folder):
            raise SnapshotFailed(f"{folder} is not empty, and a snapshot is restored into an empty folder only")
        self.folders.setdefault(folder, {}).update(tree)
        return Restored(len(tree), sum(map(len, tree.values())))

    async def changes(self, before: str, after: str) -> list[Change]:
        """See `Shelf.changes`."""
        old, new = self._tree(before), self._tree(after)
        kinds = {path: "added" if path not in old else "changed" if path in new else "removed" for path in old | new}
        rules = {path.encode(): data for path, data in old.items() if path.rpartition("/")[2] == NAME.decode()}
        ignoring = Ignoring(rules)
        return [
            Change(path, kind, ignoring.leaves_out_below(path.encode()))  # type: ignore[arg-type]
            for path, kind in sorted(kinds.items())
            if old.get(path) != new.get(path)
        ]

    async def diff(self, before: str, after: str) -> str:
        """See `Shelf.diff`."""
        old, new = self._tree(before), self._tree(after)
        patch = []
        for path in sorted(path for path in old | new if old.get(path) != new.get(path)):
            was, now = (tree.get(path, b"").decode("utf-8", "replace").splitlines(keepends=True) for tree in (old, new))
            patch += [f"diff --git a/{path} b/{path}\n", *unified_diff(was, now, f"a/{path}", f"b/{path}")]
        return "".join(patch)

    async def files(self, snapshot: str) -> list[str]:
        """See `Shelf.files`."""
        return sorted(self._tree(snapshot))

    async def content(self, snapshot: str, path: str, limit: int) -> bytes:
        """See `Shelf.content`."""
        found = self._tree(snapshot).get(path)
        if found is None:
            raise no_file(path)
        return found[:limit]

    async def look(self, session_id: str, folder: Path, *, user: Owner | None = None) -> Kept:
        """See `Shelf.look`."""
        before, trees = {**self._kept.get(session_id, {})}, {*self._trees}
        found = await self.keep(session_id, folder, 0, user=user)
        self._kept[session_id] = before
        if found.snapshot not in trees:
            del self._trees[found.snapshot]
        return found

    async def kept(self, session_id: str = "") -> dict[str, list[str]]:
        """See `Shelf.kept`."""
        return {name: [*names] for name, names in self._kept.items() if names and session_id in ("", name)}

    async def frees(self, gone: Mapping[str, Collection[str]]) -> int:
        """See `Shelf.frees`."""
        left = {name for who, names in self._kept.items() for name in names if name not in gone.get(who, ())}
        return sum(len(data) for name, tree in self._trees.items() if name not in left for data in tree.values())

    async def thin(self, gone: Mapping[str, Collection[str]]) -> None:
        """See `Shelf.thin`."""
        for session_id, names in gone.items():
            kept = self._kept.get(session_id, {})
            self._kept[session_id] = {name: None for name in kept if name not in names}

    async def forget(self, *session_ids: str) -> None:
        """See `Shelf.forget`."""
        for session_id in session_ids:
            self._kept.pop(session_id, None)

    async def tidy(self, *, timeout_s: float = 300.0) -> int:
        """See `Shelf.tidy`."""
        wanted = set[str]().union(*self._kept.values())
        gone = [self._trees.pop(name) for name in list(self._trees) if name not in wanted]
        return sum(len(data) for tree in gone for data in tree.values())

    def _tree(self, snapshot: str) -> dict[str, bytes]:
        try:
            return self._trees[snapshot]
        except KeyError:
            raise SnapshotFailed(
                f"{snapshot!r} is not in the snapshot store; other snapshots are safe: use an earlier or a later one"
            ) from None
