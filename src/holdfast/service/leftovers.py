"""Files of sessions in a home, beside the log: workspaces, sandboxes, proxies, and refs in users' repositories.

Every step can be repeated: a folder is first renamed into `removing/`, so that no session finds a part of it, and a
sweep removes what a killed process left there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import anyio.to_thread
import msgspec

from holdfast.clock import Clock
from holdfast.egress.control import is_locked, places
from holdfast.environment.layers import remove as remove_path
from holdfast.environment.store import LayerStore
from holdfast.errors import EgressUnavailable, RepositoryUnfit
from holdfast.facts.session import SessionCreated
from holdfast.hands.incarnation import by_session, remove
from holdfast.hands.launch import end_supervisor
from holdfast.log.base import Removals, Snapshots
from holdfast.log.removal import removed_sessions
from holdfast.log.search.index import SearchIndex
from holdfast.log.verify import Source
from holdfast.repo.base import Shelf
from holdfast.repo.repository import Refs
from holdfast.service.sessions import Store as Sessions
from holdfast.session.rows import SessionRow

KEPT_BRANCH = "main"
"""The branch of a mission that is never deleted: its result."""


class Store(Sessions, Snapshots, Removals, Source, Protocol):
    """The log as the life cycle of a home needs it."""

    async def sweep(self) -> int:
        """Delete the bodies that no event names."""
        ...


class Premises(msgspec.Struct, frozen=True):
    """A home, and the doors to what it holds. `repository` opens a user's repository."""

    store: Store
    home: Path
    clock: Clock
    shelf: Shelf | None
    layers: LayerStore
    repository: Callable[[str], Refs]
    search: SearchIndex
    actor: str

    @property
    def workspaces(self) -> Path:
        """Workspaces that the harness made."""
        return self.home / "workspaces"

    @property
    def removing(self) -> Path:
        """Folders on their way out."""
        return self.home / "removing"

    def workspace_of(self, row: SessionRow) -> Path | None:
        """Return the workspace that the harness made for a session; None for a folder that a user gave."""
        path = self.workspaces / row.session_id
        return path if row.workspace == str(path) else None

    def set_aside(self, *paths: Path) -> None:
        """Move folders out of the way of every session, at once."""
        self.removing.mkdir(mode=0o700, exist_ok=True)
        for path in paths:
            if path.is_dir() and not path.is_symlink():
                path.rename(self.removing / f"{path.parent.name}.{path.name}.{self.clock.now_us()}")

    async def empty(self) -> None:
        """Remove what was set aside, also by a process that died."""
        for path in sorted(self.removing.glob("*")):
            await anyio.to_thread.run_sync(remove_path, path)


def proxy_folders(home: Path, session_id: str) -> tuple[Path, ...]:
    """Return the folders of a session's dead proxy; none while it lives."""
    found = places(home / "egress", session_id)
    try:
        return () if is_locked(found.lock) else (found.own, found.door)
    except EgressUnavailable:
        return ()


async def refs_of(place: Premises, created: SessionCreated) -> dict[str, str]:
    """Return the refs of a mission but its main branch, with their commits; none if its repository is gone."""
    assert created.mission is not None
    name = created.mission.name
    try:
        repository = place.repository(created.mission.repo)
        found = await repository.refs_below(f"refs/holdfast/{name}/")
        found |= await repository.refs_below(f"refs/heads/holdfast/{name}/")
    except RepositoryUnfit:
        return {}
    found.pop(f"refs/heads/holdfast/{name}/{KEPT_BRANCH}", None)
    return found


async def drop_refs(place: Premises, repo: str, refs: Mapping[str, str]) -> int:
    """Delete refs where they are; one that moved, or is checked out, stays. Returns the number deleted."""
    dropped = 0
    for ref, commit in refs.items():
        try:
            dropped += await place.repository(repo).drop(ref, commit)
        except RepositoryUnfit:
            continue
    return dropped


async def clear(place: Premises, session_ids: Sequence[str]) -> None:
    """Remove what the home holds of removed sessions beside the log. Safe to repeat."""
    sandboxes = await anyio.to_thread.run_sync(by_session, place.home / "hands")
    for session_id in session_ids:
        for folder in sandboxes.get(session_id, ()):
            await anyio.to_thread.run_sync(end_supervisor, folder)
            await anyio.to_thread.run_sync(remove, folder)
        place.set_aside(place.workspaces / session_id, *proxy_folders(place.home, session_id))
    if place.shelf is not None and session_ids:
        await place.shelf.forget(*session_ids)
    await place.empty()


async def clear_removed(place: Premises) -> int:
    """Remove what an interrupted removal left of its sessions. Returns the number of these sessions."""
    removed = await place.store.look(removed_sessions)
    left = set(await place.shelf.kept() if place.shelf is not None else ())
    left |= set(await anyio.to_thread.run_sync(by_session, place.home / "hands"))
    for folder in (place.workspaces, place.home / "egress", place.home / "egress" / "doors"):
        left |= {name for name in (os.listdir(folder) if folder.is_dir() else ())}
    left &= removed.keys()
    await clear(place, sorted(left))
    return len(left)
