"""A run over a list: how it stands, and a page of its items with state, tries, cost, and result or reason."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from holdfast.errors import UsageError
from holdfast.facts.items import ItemAudited, ItemEnded, ItemFailed, ItemQuarantined
from holdfast.kinds.items.output import results
from holdfast.kinds.items.state import ItemsState, forecast_error, items_state, rest
from holdfast.log.base import Log
from holdfast.serve.gate import visitor_of
from holdfast.serve.pages.drawings import Gauge, gauge
from holdfast.serve.pages.frame import frame
from holdfast.serve.pages.reads import viewer_of
from holdfast.serve.pages.render import render
from holdfast.serve.site import Site
from holdfast.service.inbox import items as inbox_items
from holdfast.service.items import runs
from holdfast.service.items.runs import Standing
from holdfast.service.sessions import standing
from holdfast.session.money import usd
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

ROWS = 100
"""Number of items on a page."""

NAMES = {"todo": "to do", "running": "running", "submitted": "audited", "done": "done", "quarantined": "quarantined"}
"""State of an item → its name on the page."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item. `text` is its result, or why its last try failed; `child_id` its session, empty for none yet."""

    anchor: str
    key: str
    index: int
    state: str
    tries: int
    cost: str
    text: str = ""
    child_id: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The page of a run. `only` is the state of its items, empty for all; `counts` are their numbers by state.

    `earlier` and `later` are positions to go to, None for none.
    """

    session_id: str
    name: str
    goal: str
    state: str
    detail: str
    over: bool
    asks: tuple[str, ...]
    now: Standing
    progress: Gauge
    cost: str
    forecast: str
    only: str
    counts: tuple[tuple[str, int], ...]
    items: tuple[Item, ...]
    earlier: int | None
    later: int | None


async def page(site: Site, row: SessionRow, state: State, only: str, first: int) -> Run:
    """Return the page of a run with its items from the position `first` on, those in the state `only` if it is set."""
    own, now = items_state(state), runs.standing(state)
    keys = [key for key, item in own.items.items() if only in ("", item.status)]
    shown = keys[first : first + ROWS]
    asks = await inbox_items(site.store, site.clock.now_us(), session_id=row.session_id)
    words = [item.status for item in own.items.values()]
    return Run(
        session_id=row.session_id,
        name=row.key or row.session_id,
        goal=row.goal,
        state=standing(row, running=row.session_id in await site.store.holders()),
        detail=row.detail,
        over=row.status in ("done", "failed", "cancelled"),
        asks=tuple(each.item.item_id for each in asks),
        now=now,
        progress=msgspec.structs.replace(gauge(now.done + now.quarantined, max(1, now.total)), level="low"),
        cost="unpriced" if own.unpriced else usd(own.spent_pico),
        forecast=rest(own) or forecast_error(own),
        only=only,
        counts=tuple((word, words.count(word)) for word in NAMES if word in words),
        items=tuple([await _item(site.store, row.session_id, own, key) for key in shown]),
        earlier=max(0, first - ROWS) if first else None,
        later=first + ROWS if first + ROWS < len(keys) else None,
    )


async def _item(log: Log, session_id: str, own: ItemsState, key: str) -> Item:
    item = own.items[key]
    seq = item.ended_seq if item.status in ("submitted", "done") else item.failed_seq
    text, child_id = await _outcome(log, session_id, seq) if seq else ("", "")
    return Item(
        anchor=f"i-{item.seq}-{item.place}",
        key=key,
        index=item.index,
        state=item.status,
        tries=item.tries,
        cost="" if not item.tries else "unpriced" if item.cost_pico is None else usd(item.cost_pico),
        text=text,
        child_id=item.child_id or child_id,
    )


async def _outcome(log: Log, session_id: str, seq: int) -> tuple[str, str]:
    """Return the result or the reason in an event, and the session that it is about."""
    event, *_ = await log.read(session_id, after=seq - 1, limit=1)
    match event.fact:
        case ItemEnded(result=result, child_id=child_id):
            return result if isinstance(result, str) else msgspec.json.encode(result).decode(), child_id
        case ItemFailed(reason=reason, child_id=child_id) | ItemQuarantined(reason=reason, child_id=child_id):
            return reason, child_id
        case ItemAudited(why=why, child_id=child_id):
            return f"refused by the audit: {why}", child_id
    return "", ""  # the event was erased


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of the page of a run, and of its results."""

    async def found(request: Request) -> tuple[SessionRow, State | None]:
        row = await site.find(visitor_of(request), request.path_params["session"])
        state = await site.folds.state(row.session_id)
        return row, state if state.created is not None and state.created.items is not None else None

    async def one(request: Request) -> Response:
        """The items of a run over a list."""
        row, state = await found(request)
        if state is None:
            return RedirectResponse(f"/sessions/{row.session_id}", 303)
        only, text = request.query_params.get("only", ""), request.query_params.get("from", "0")
        if not text.isascii() or not text.isdecimal() or len(text) > 9:
            raise UsageError(f"{text[:30]!r} is no position of an item; nothing was changed")
        first = int(text)
        if only not in ("", *NAMES):
            raise UsageError(f"no item has the state {only[:30]!r}; the states are {', '.join(NAMES)}")
        made = await frame(site.store, viewer_of(visitor_of(request)), "Fleet", site.clock.now_us())
        return render(request, "items.html", frame=made, page=await page(site, row, state, only, first), names=NAMES)

    async def exported(request: Request) -> Response:
        """All results so far, as in the output file."""
        row, state = await found(request)
        if state is None:
            raise UsageError(f"{row.key or row.session_id} is not a run over a list")

        async def blocks(state: State = state) -> AsyncIterator[bytes]:
            async for lines in results(site.store, state):
                yield b"".join(lines)

        headers = {"content-disposition": 'attachment; filename="results.jsonl"'}
        return StreamingResponse(blocks(), media_type="application/x-ndjson", headers=headers)

    return [
        Route("/items/{session}", one, methods=["GET"]),
        Route("/items/{session}/results.jsonl", exported, methods=["GET"]),
    ]
