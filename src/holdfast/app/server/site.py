"""Provide the HTTP server with what it needs of an opened home."""

from __future__ import annotations

from functools import partial

from holdfast.app.compose import Runtime
from holdfast.app.forking import ground_of
from holdfast.app.server.folding import fold_ahead
from holdfast.app.server.missions import open_mission_wanted
from holdfast.app.server.opening import open_wanted
from holdfast.app.settings.config import database_path
from holdfast.app.settings.targets import read_targets
from holdfast.app.settings.values import postgres_address
from holdfast.brain.points import Checkpoint
from holdfast.clock import SystemClock
from holdfast.ids import system_entropy
from holdfast.log.search.index import SearchIndex
from holdfast.serve.access import Access, Visitor
from holdfast.serve.folds import Ahead
from holdfast.serve.site import MissionWanted, SessionWanted, Site
from holdfast.session.rows import SessionRow


def site_of(runtime: Runtime, access: Access, index: SearchIndex, url: str) -> Site:
    """Return the home as routes need it."""

    async def opening(visitor: Visitor, wanted: SessionWanted) -> SessionRow:
        return await open_wanted(runtime, visitor, wanted)

    async def opening_mission(visitor: Visitor, wanted: MissionWanted) -> SessionRow:
        return await open_mission_wanted(runtime, visitor, wanted)

    ahead: Ahead = partial(fold_ahead, database_path(runtime.settings), runtime.home.workers)
    return Site(
        store=runtime.store,
        intake=runtime.intake,
        kinds=runtime.kinds,
        clock=SystemClock(),
        entropy=system_entropy,
        home=runtime.home.path,
        access=access,
        index=index,
        url=url,
        opening=opening,
        opening_mission=opening_mission,
        ahead=_nothing_ahead if postgres_address(runtime.settings.db) else ahead,
        shelf=runtime.shelf,
        push=tuple(each.name for each in read_targets(runtime.settings.notify) if each.kind == "push"),
        ground=ground_of(runtime),
        secret=runtime.secret,
    )


async def _nothing_ahead(row: SessionRow, seq: int, start: Checkpoint | None) -> list[Checkpoint]:
    """Leave the folding to the server."""
    return []
