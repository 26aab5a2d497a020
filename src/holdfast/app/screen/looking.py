"""The inbox as it stands in the log now."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from holdfast.app.compose import Runtime
from holdfast.app.screen.inbox import FINISHED_US, Entry, Shown, build
from holdfast.app.screen.progress import describe
from holdfast.clock import SystemClock
from holdfast.facts.shift import ParkReason
from holdfast.log.base import Index, Which
from holdfast.session.rows import ItemRow, SessionRow
from holdfast.session.state import State

SHOWN = 100
"""Items, and sessions of each status, that a person is shown. A script gets all of them."""


async def look(runtime: Runtime, since_us: int | None = None, *, limit: int | None = None) -> list[Entry]:
    """The inbox as it stands; with a `limit`, so many of the oldest items and of the latest sessions of each status.

    What ended before `since_us` is left out; by default that is a week ago.
    """
    store, now_us = runtime.store, SystemClock().now_us()
    items = [await shown_of(runtime, item) for item in await store.items(limit=limit)]
    since_us = now_us - FINISHED_US if since_us is None else since_us
    rows = await _around(store, {shown.item.session_id for shown in items}, since_us, limit)
    return build(rows, items, await store.holders(), since_us + FINISHED_US)


async def _around(index: Index, named: set[str], since_us: int, limit: int | None) -> list[SessionRow]:
    """The latest sessions of each status, those that are named, and the tops of their trees."""
    filters = [Which(status="runnable"), *(Which(reason=each) for each in get_args(ParkReason))]
    filters += [Which(status=each, updated_us=since_us) for each in ("failed", "done", "cancelled")]
    found = {row.session_id: row for each in filters for row in await index.sessions(each, limit=limit)}
    wanted = named | {row.root for row in found.values()}
    while missing := wanted - found.keys():
        for session_id in missing:
            found[session_id] = await index.find(session_id)
            wanted.add(found[session_id].root)
    return sorted(found.values(), key=lambda row: (row.created_us, row.session_id), reverse=True)


async def shown_of(runtime: Runtime, item: ItemRow) -> Shown:
    """An item with its question, who may answer it, and how it was answered."""
    shown = Shown(item, await runtime.intake.asked(item), await runtime.intake.who(item))
    if item.closed_seq is None:
        return shown
    (event,) = await runtime.store.read(item.session_id, after=item.closed_seq - 1, limit=1)
    return replace(shown, answered=describe(event), proof=getattr(event.fact, "proof", ""))


async def counting_answers(runtime: Runtime, state: State) -> list[str]:
    """The answers of a session that still allow or refuse something: who gave them, and what is proven about that."""
    seqs = {grant.seq for grant in state.grants} | {ask.decided_seq for ask in state.asks.values() if ask.verdict}
    found = [await runtime.store.read(state.session_id, after=seq - 1, limit=1) for seq in sorted(seqs)]
    return [describe(event) for (event,) in found]
