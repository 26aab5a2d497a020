"""Pages for browsers: server-rendered HTML that works without scripts."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast.serve.pages.render import render
from holdfast.serve.site import Site


def routes(site: Site) -> list[BaseRoute]:
    """The routes of all pages, and of their static files."""

    async def start(request: Request) -> Response:
        return render(request, "start.html", home=str(site.home))

    return [
        Route("/", start, methods=["GET"]),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
