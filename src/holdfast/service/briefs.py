"""Queries of briefs: of one session or mission with all below it, and of all recent activity."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import SnapshotFailed, UnknownSession
from holdfast.facts.codec import Event
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.shift import BriefRead
from holdfast.kinds.mission.brief.brief import Brief, brief
from holdfast.log.base import Log, Which
from holdfast.repo.base import Shelf
from holdfast.service.inbox import Entry, inbox
from holdfast.service.sessions import Store
from holdfast.session.costs import Costs, costs
from holdfast.session.fold import empty, fold
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds


async def brief_of(
    store: Store, kinds: Kinds, shelf: Shelf | None, row: SessionRow, *, since_us: int | None = None
) -> Brief:
    """Return the brief of a session and its descendants, from `since_us` on if given."""
    events = await store.read(row.session_id)
    state = fold(empty(row.session_id, kinds), events)
    running = row.session_id in await store.holders()
    changed = await _changed(shelf, events) if state.tenant.kind.branch(state) is None else ()
    return brief(events, state, await logs_below(store, row), since_us=since_us, running=running, changed=changed)


async def _changed(shelf: Shelf | None, events: Sequence[Event]) -> tuple[str, ...]:
    """The files that differ between the first and the last workspace snapshot of a session."""
    kept = [event.fact.snapshot for event in events if isinstance(event.fact, WorkspaceSnapshotted)]
    names = [snapshot for snapshot in kept if snapshot]
    if len(names) < 2 or names[0] == names[-1] or shelf is None:
        return ()
    try:
        found = await shelf.changes(names[0], names[-1])
    except SnapshotFailed:
        return ()
    return tuple(each.path for each in found if not each.ignored)


async def logs_below(store: Store, row: SessionRow) -> list[Sequence[Event]]:
    """Return the logs of all sessions below one, oldest first."""
    rows = list(reversed(await store.sessions(Which(root=row.root))))
    below: list[Sequence[Event]] = []
    parents = {row.session_id}
    for each in rows:  # a child is always younger than its parent
        if each.parent in parents:
            parents.add(each.session_id)
            below.append(await store.read(each.session_id))
    return below


class Moved(msgspec.Struct, frozen=True):
    """An entry of the inbox with recent activity. `family`: its session and, if that is a root, all sessions below."""

    entry: Entry
    family: tuple[SessionRow, ...]

    @property
    def costs(self) -> Costs:
        """Costs of its session: the family's, and its own."""
        return costs(self.family)[self.entry.row.session_id]


async def moved(store: Store, now_us: int, since_us: int, *, limit: int | None = None) -> list[Moved]:
    """Return the open items, and the root sessions of trees that changed after `since_us`.

    The descendants of a root are in its own brief. `limit` is that of the inbox.
    """
    found = [
        Moved(each, tuple(await store.sessions(Which(root=each.row.session_id))) or (each.row,))
        for each in await inbox(store, now_us, since_us=since_us, limit=limit)
    ]
    return [
        each
        for each in found
        if each.entry.item is not None
        or (not each.entry.row.parent and max(row.updated_us for row in each.family) > since_us)
    ]


async def read_through(log: Log, actor: str) -> int | None:
    """Return the time up to which a user has read the brief of all activity, None if never."""
    try:
        events = await log.read(HOME)
    except UnknownSession:  # the home has no events yet
        return None
    mine = (event.fact for event in reversed(events) if event.actor == actor)
    return next((fact.through_us for fact in mine if isinstance(fact, BriefRead)), None)
