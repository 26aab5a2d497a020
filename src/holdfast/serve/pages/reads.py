"""Routes that show a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.errors import UnknownSession, UsageError
from holdfast.kinds.mission.fold.state import mission_of
from holdfast.log.base import Which
from holdfast.serve.access import Visitor
from holdfast.serve.folds import apart
from holdfast.serve.gate import visitor_of
from holdfast.serve.pages import brief, fleet, inbox, mission, search, session
from holdfast.serve.pages.frame import Frame, Viewer, frame
from holdfast.serve.pages.render import render
from holdfast.serve.site import Site
from holdfast.service.briefs import brief_of, read_through
from holdfast.service.event_lines import in_full
from holdfast.service.filters import SYNTAX
from holdfast.service.inbox import items
from holdfast.service.items.runs import progress
from holdfast.session.rows import SessionRow

DAY_US = 24 * 3_600 * 1_000_000

Page = Callable[[Request], Awaitable[Response]]


def viewer_of(visitor: Visitor) -> Viewer:
    """Return a request's caller as pages show it."""
    credential = visitor.credential
    return Viewer(credential.name, visitor.csrf, visitor.may("operator"), visitor.may("admin"), not credential.project)


def position(text: str, head: int) -> int | None:
    """Return the position in a query, None without one. Raises `UsageError`."""
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or not 1 <= int(text) <= head:
        raise UsageError(f"there is no event {text[:30]!r} here; the log has the events 1 to {head}")
    return int(text)


class Reads:
    """The pages of one home."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def _frame(self, request: Request, here: str, needs: int | None = None) -> Frame:
        viewer = viewer_of(visitor_of(request))
        return await frame(self.site.store, viewer, here, self.site.clock.now_us(), needs)

    async def _looked_us(self, visitor: Visitor) -> int | None:
        return await apart(read_through, self.site.store, visitor.caller.actor)

    async def inbox(self, request: Request) -> Response:
        """The inbox, which is the home page. An item that is shown whole counts as seen."""
        visitor, store = visitor_of(request), self.site.store
        now_us = self.site.clock.now_us()
        looked_us = await self._looked_us(visitor) or now_us - DAY_US
        page = await inbox.page(store, now_us, looked_us, self.site.keeps(visitor))
        made = await self._frame(request, "Inbox", page.counted)
        done_id = request.query_params.get("done", "")
        done = ""
        if done_id:
            item, row = await self.site.find_item(visitor, done_id)
            done = (await inbox.one(store, item, row, made.now_us)).answered
        if visitor.may("operator"):
            for card in page.cards:
                if card.whole and not card.seen:
                    await self.site.acting_as(visitor).seen(await store.item(card.item_id))
        return render(request, "inbox.html", frame=made, page=page, done=done, done_id=done_id)

    async def item(self, request: Request) -> Response:
        """One inbox item, whole."""
        visitor, store = visitor_of(request), self.site.store
        item, row = await self.site.find_item(visitor, request.path_params["item"])
        if item.status == "open" and item.seen_us is None and visitor.may("operator"):
            await self.site.acting_as(visitor).seen(item)
            item = await store.item(item.item_id)
        made = await self._frame(request, "Inbox")
        card = await inbox.one(store, item, row, made.now_us)
        return render(request, "item.html", frame=made, card=card)

    async def session(self, request: Request) -> Response:
        """A session: the end of its log, or its state after an earlier event."""
        visitor, site = visitor_of(request), self.site
        try:
            row = await site.find(visitor, request.path_params["session"])
        except UnknownSession:
            if request.path_params["session"] == "last":
                return RedirectResponse("/fleet", 303)
            raise
        if request.path_params["session"] == "last":
            return RedirectResponse(f"/sessions/{row.session_id}", 303)
        at = position(request.query_params.get("at", ""), row.head)
        made = await self._frame(request, "Session")
        state = await site.folds.state(row.session_id)
        running = row.session_id in await site.store.holders()
        open_calls = session.unfinished(state, running=running)
        asks = [each.item.item_id for each in await items(site.store, made.now_us, session_id=row.session_id)]
        then = None
        if at is not None and (request.query_params.get("state") or site.folds.quick(row.session_id, at)):
            then = await session.then(site.shelf, await site.folds.point(row, at), state.snapshot, site.entropy)
        return render(
            request,
            "session.html",
            frame=made,
            head=await session.head(site.store, row, state, asks),
            timeline=await session.timeline(site.store, row, open_calls, at and min(row.head, at + session.AFTER)),
            then=then,
            asked=at,
        )

    async def event(self, request: Request) -> Response:
        """One event with its whole text."""
        row = await self.site.find(visitor_of(request), request.path_params["session"])
        seq = position(request.path_params["seq"], row.head) or row.head
        (event,) = await self.site.store.read(row.session_id, after=seq - 1, limit=1)
        return render(
            request,
            "event.html",
            frame=await self._frame(request, "Session"),
            moment=session.moment(event, {}),
            whole=in_full(event),
            session_id=row.session_id,
            called=row.key or row.session_id,
        )

    async def fleet(self, request: Request) -> Response:
        """A page of the sessions that pass a filter."""
        return await self._list(request, "Fleet")

    async def missions(self, request: Request) -> Response:
        """A page of the missions."""
        return await self._list(request, "Missions")

    async def _list(self, request: Request, here: str) -> Response:
        visitor, query = visitor_of(request), request.query_params
        made = await self._frame(request, here)
        after = (await self.site.find(visitor, query["after"])).session_id if query.get("after") else ""
        top = here == "Missions"
        page = await fleet.page(
            self.site.store,
            made.now_us,
            query.get("q", ""),
            after,
            progress=self._progress,
            sees=self.site.keeps(visitor),
            top=top,
            machines=await self.site.store.fleet(),
        )
        return render(
            request, "fleet.html", frame=made, page=page, missions=top, first=bool(after), syntax=f"Filters: {SYNTAX}."
        )

    async def _progress(self, row: SessionRow) -> str:
        return progress(await self.site.folds.state(row.session_id))

    async def search(self, request: Request) -> Response:
        """A page of the sessions with events that have all the words of a search."""
        visitor, query, site = visitor_of(request), request.query_params, self.site
        made = await self._frame(request, "")
        after = (await site.find(visitor, query["after"])).session_id if query.get("after") else ""
        page = await search.page(
            site.store, site.index, made.now_us, query.get("q", ""), after, keeps=site.keeps(visitor)
        )
        return render(request, "search.html", frame=made, page=page)

    async def mission(self, request: Request) -> Response:
        """The board of a mission."""
        row = await self.site.find(visitor_of(request), request.path_params["session"])
        state = await self.site.folds.state(row.session_id)
        if mission_of(state) is None:
            return RedirectResponse(f"/sessions/{row.session_id}", 303)
        page = await mission.page(self.site.store, row, state)
        return render(request, "mission.html", frame=await self._frame(request, "Missions"), page=page)

    async def brief(self, request: Request) -> Response:
        """The brief since the caller's last look."""
        visitor, site = visitor_of(request), self.site
        made = await self._frame(request, "Brief")
        looked_us = await self._looked_us(visitor)
        page = await apart(
            brief.page,
            site.store,
            site.kinds,
            site.shelf,
            made.now_us,
            looked_us or made.now_us - DAY_US,
            first=looked_us is None,
            sees=self.site.keeps(visitor),
        )
        return render(request, "brief.html", frame=made, page=page, alone=False)

    async def brief_of(self, request: Request) -> Response:
        """The whole brief of one session or mission."""
        site = self.site
        row = await site.find(visitor_of(request), request.path_params["session"])
        told = await apart(brief_of, site.store, site.kinds, site.shelf, row)
        made = await self._frame(request, "Brief")
        return render(request, "brief.html", frame=made, page=brief.alone(row, told), alone=True)

    async def stop(self, request: Request) -> Response:
        """The second step of the emergency stop, and of lifting it."""
        store = self.site.store
        stop = await store.stopped()
        running = len(await store.holders())
        due = max(0, await store.count(Which(status="runnable")) - running)
        made = await self._frame(request, "Fleet")
        return render(request, "stop.html", frame=made, running=running, due=due, seq=stop.seq if stop else 0)


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes that show a page."""
    reads = Reads(site)
    paths: dict[str, Page] = {
        "/": reads.inbox,
        "/inbox/{item}": reads.item,
        "/brief": reads.brief,
        "/brief/{session}": reads.brief_of,
        "/missions": reads.missions,
        "/missions/{session}": reads.mission,
        "/sessions/{session}": reads.session,
        "/sessions/{session}/events/{seq}": reads.event,
        "/fleet": reads.fleet,
        "/search": reads.search,
        "/stop": reads.stop,
    }
    return [Route(path, page, methods=["GET"]) for path, page in paths.items()]
