"""The duties of a home: a list with next instants and last outcomes, and one duty with its history and values."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.serve.gate import visitor_of
from holdfast.serve.pages.drawings import Plot, plot
from holdfast.serve.pages.frame import frame
from holdfast.serve.pages.reads import viewer_of
from holdfast.serve.pages.render import render
from holdfast.serve.site import Site
from holdfast.service import duties
from holdfast.service.duties import Entry, Overview

SHOWN, ENTRIES = 200, 50
"""Most duties of the list, and entries of a history."""


class Chart(msgspec.Struct, frozen=True):
    """The values of one name, with their drawing."""

    name: str
    unit: str
    plot: Plot
    values: tuple[tuple[int, float], ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One duty: newest entries first. `dead` are the keys of its dead events."""

    duty: Overview
    goal: str
    entries: tuple[Entry, ...]
    charts: tuple[Chart, ...]
    dead: tuple[str, ...]
    missed: int
    skipped: int


async def page(site: Site, name: str, request: Request) -> Page:
    """Return the page of a duty. Raises `UnknownSession`, or `UsageError` for another kind of session."""
    found = await site.find(visitor_of(request), name)
    row = await duties.find_duty(site.store, found.session_id)
    own = await duties.state_of_duty(site.store, site.store, site.kinds, row)
    entries = await duties.history(site.store, row, ENTRIES)
    charts = tuple(
        Chart(
            name,
            series.unit,
            plot([(point.at_us, point.value) for point in series.points]),
            tuple((point.at_us, point.value) for point in series.points[-ENTRIES:]),
        )
        for name, series in own.series.items()
    )
    return Page(
        duty=await duties.overview(site.store, site.store, site.kinds, row),
        goal=own.goal,
        entries=tuple(reversed(entries)),
        charts=charts,
        dead=tuple(own.dead)[-ENTRIES:],
        missed=own.missed,
        skipped=own.skipped,
    )


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of the pages about duties."""

    async def listed(request: Request) -> Response:
        """The duties of this home."""
        visitor = visitor_of(request)
        made = await frame(site.store, viewer_of(visitor), "Fleet", site.clock.now_us())
        found: list[Overview] = []
        async for row in duties.duty_rows(site.store):
            if len(found) < SHOWN and await site.sees(visitor, row):
                found.append(await duties.overview(site.store, site.store, site.kinds, row))
        return render(request, "duties.html", frame=made, duties=found)

    async def one(request: Request) -> Response:
        """One duty."""
        made = await frame(site.store, viewer_of(visitor_of(request)), "Fleet", site.clock.now_us())
        return render(request, "duty.html", frame=made, page=await page(site, request.path_params["duty"], request))

    return [Route("/duties", listed, methods=["GET"]), Route("/duties/{duty}", one, methods=["GET"])]
