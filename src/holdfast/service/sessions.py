"""Queries of sessions: pages of all, the short list, trees, and children. They change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from holdfast.log.base import EVERY, Index, Leases, Log, Which
from holdfast.session.costs import Costs, costs
from holdfast.session.decide.waits import PAUSED, STOPPED
from holdfast.session.rows import RowStatus, SessionRow
from holdfast.session.state import State

UNFINISHED: tuple[RowStatus, ...] = ("runnable", "parked")

SHOWN = 20
"""Number of latest sessions in the short list, in addition to unfinished ones."""

UNFINISHED_SHOWN = 100
"""Number of latest unfinished sessions of each status in the short list."""


class Store(Log, Index, Leases, Protocol):
    """The log as queries need it: its events, its rows, and the leases of live processes."""


class Session(msgspec.Struct, frozen=True):
    """A session in a list. `running`: a live process holds it. `costs` are those of its tree and its own."""

    row: SessionRow
    running: bool
    costs: Costs


async def sessions(store: Store, which: Which = EVERY, *, after: str = "", limit: int | None = None) -> list[Session]:
    """Return the sessions that pass the filter, newest first.

    A page starts after the session named `after`, the last one of the previous page, and has at most `limit` sessions.
    """
    before = await store.find(after) if after else None
    rows = await store.sessions(which, before=before, limit=limit)
    return await _listed(store, rows, whole=which == EVERY and not after and limit is None)


async def latest(store: Store) -> list[Session]:
    """Return the short list, newest first: the latest sessions, and the latest unfinished ones."""
    return await _listed(store, await _latest(store))


async def trees(store: Store, *, whole: bool) -> list[Session]:
    """Return whole trees, newest first: those of the short list, or with `whole` all.

    In each tree, the children follow their parent, oldest first.
    """
    if whole:
        rows = await store.sessions()
    else:
        roots = dict.fromkeys(row.session_id for row in await _latest(store, Which(top=True)))
        roots |= dict.fromkeys(row.root for row in await _latest(store) if row.status in UNFINISHED)
        rows = [row for root in roots for row in await store.sessions(Which(root=root))]
    below: dict[str, list[SessionRow]] = {}
    known = {row.session_id for row in rows}
    for row in sorted(rows, key=lambda row: (row.created_us, row.session_id)):
        below.setdefault(row.parent if row.parent in known else "", []).append(row)
    found: list[SessionRow] = []

    def add(row: SessionRow) -> None:
        found.append(row)
        for child in below.get(row.session_id, []):
            add(child)

    for top in reversed(below.get("", [])):
        add(top)
    return await _listed(store, found, whole=True)


async def children(store: Store, state: State) -> list[Session]:
    """Return the sessions that a session had opened in this state, oldest first, with their current status."""
    return await _listed(store, [await store.find(child.child_id) for child in state.children.values()])


async def costs_of(store: Index, *rows: SessionRow) -> dict[str, Costs]:
    """Return the costs of these sessions and of all in their trees, by session id."""
    roots = frozenset(row.root for row in rows)
    return costs(await store.sessions(Which(roots=roots))) if roots else {}


async def _listed(store: Store, rows: Iterable[SessionRow], *, whole: bool = False) -> list[Session]:
    """Return rows as sessions. `whole`: they are whole trees."""
    rows, holders = list(rows), await store.holders()
    spent = costs(rows) if whole else await costs_of(store, *rows)
    return [Session(row, row.session_id in holders, spent[row.session_id]) for row in rows]


async def _latest(store: Store, which: Which = EVERY) -> list[SessionRow]:
    found = {row.session_id: row for row in await store.sessions(which, limit=SHOWN)}
    top = msgspec.structs.replace(which, top=True)  # a run with many children stays in the list
    found |= {row.session_id: row for row in await store.sessions(top, limit=SHOWN)}
    for status in UNFINISHED:
        of_status = msgspec.structs.replace(which, status=status)
        found |= {row.session_id: row for row in await store.sessions(of_status, limit=UNFINISHED_SHOWN)}
    return newest_first(found.values())


def newest_first(rows: Iterable[SessionRow]) -> list[SessionRow]:
    """Sort rows as lists do."""
    return sorted(rows, key=lambda row: (row.created_us, row.session_id), reverse=True)


def standing(row: SessionRow, *, running: bool) -> str:
    """The status of a session in a few words."""
    if running:
        return "running"
    if row.status == "runnable" and row.holder:
        return "died"
    if row.status == "parked" and row.detail in (PAUSED, STOPPED):
        return "paused" if row.detail == PAUSED else "stopped"
    return row.status + (f" ({row.reason})" if row.reason else "")
