"""Removal of whole session trees, with everything that only they hold.

The order makes it repeatable after a kill at any moment: first the refs of missions, then each tree's events in one
transaction, then the files, which the record in the home's log still names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

import anyio.to_thread
import msgspec

from holdfast.brain.acts.hands import TIDY_S
from holdfast.errors import UsageError
from holdfast.facts.session import SessionCreated
from holdfast.hands.limits.plan import baseline_name
from holdfast.log.base import Which, each_session
from holdfast.log.removal import removed_sessions
from holdfast.service.intake import OVER
from holdfast.service.leftovers import Premises, clear, clear_removed, drop_refs, refs_of
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow


class Tree(msgspec.Struct, frozen=True):
    """A session tree to remove, root first. `workspaces` are folders that go with it, `refs` are refs by repository.

    `running` are its sessions that a live process holds, `unfinished` those that can still run.
    """

    rows: tuple[SessionRow, ...]
    running: tuple[SessionRow, ...]
    unfinished: tuple[SessionRow, ...]
    workspaces: tuple[str, ...]
    refs: dict[str, dict[str, str]]

    @property
    def root(self) -> SessionRow:
        """The session at the top."""
        return self.rows[0]


async def trees_to_remove(place: Premises, names: Iterable[str]) -> list[Tree]:
    """Find the trees of these sessions, forks before their origins. Changes nothing.

    Raises `UnknownSession`, and `UsageError` for a child and for the origin of a fork that stays.
    """
    roots: dict[str, SessionRow] = {}
    for name in names:
        row = await place.store.find(name)
        if row.session_id == HOME:
            raise UsageError(f"{HOME} is the log of the home itself and cannot be removed; nothing was removed")
        if row.parent:
            raise UsageError(
                f"{row.session_id} was opened by session {row.root} and goes with it; nothing was removed: remove the "
                f"whole tree with `holdfast rm {row.root}`"
            )
        roots[row.session_id] = row
    forks: dict[str, list[SessionRow]] = {}
    async for row in each_session(place.store):
        if row.origin:
            forks.setdefault(row.origin, []).append(row)
    holders = await place.store.holders()
    found = []
    for root in sorted(roots.values(), key=lambda row: row.created_us, reverse=True):  # a fork is newer than its origin
        rows = sorted(
            await place.store.sessions(Which(root=root.session_id)), key=lambda row: (row.depth, row.created_us)
        )
        for fork in (fork for row in rows for fork in forks.get(row.session_id, ())):
            if fork.root not in roots:
                raise UsageError(
                    f"session {fork.session_id} is a fork of {fork.origin} and shares its first events; nothing was "
                    f"removed: remove both with `holdfast rm {root.session_id} {fork.root}`"
                )
        found.append(
            Tree(
                tuple(rows),
                tuple(row for row in rows if row.session_id in holders),
                tuple(row for row in rows if row.status not in OVER),
                tuple(str(path) for row in rows if (path := place.workspace_of(row)) is not None and path.is_dir()),
                await _refs(place, root),
            )
        )
    return found


async def _refs(place: Premises, root: SessionRow) -> dict[str, dict[str, str]]:
    first = await place.store.read(root.session_id, after=root.origin_seq, limit=1)
    created = first[0].fact if first else None
    if not isinstance(created, SessionCreated) or created.mission is None:
        return {}
    return {created.mission.repo: await refs_of(place, created)}


async def remove_tree(place: Premises, tree: Tree) -> None:
    """Remove a tree. Raises `LeaseHeld` or `HeadMoved` if it runs or ran meanwhile; then its log is untouched."""
    for repo, refs in tree.refs.items():
        await drop_refs(place, repo, refs)
    await place.store.remove(tree.rows, place.actor)
    for row in tree.rows:
        (place.home / "usage" / baseline_name(row.session_id, row.workspace)).unlink(missing_ok=True)
    await clear(place, [row.session_id for row in tree.rows])


async def tidy(place: Premises) -> None:
    """Free the space of removed sessions, forget their words, and finish removals that were interrupted."""
    await clear_removed(place)
    with closing(place.search):
        await anyio.to_thread.run_sync(place.search.forget, (await place.store.look(removed_sessions)).keys())
    await place.store.sweep()
    if place.shelf is not None:
        await place.shelf.tidy(timeout_s=TIDY_S)


async def were_removed(place: Premises, names: Sequence[str]) -> bool:
    """Return True if all of these are ids of sessions that were removed before."""
    removed = await place.store.look(removed_sessions)
    return all(name in removed for name in names)
