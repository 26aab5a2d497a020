"""Mission Control: screens as HTML that the server renders, over the queries of `service`.

A screen is a frozen struct made by a function (`inbox`, `session`, `fleet`, `mission`, `brief`, `duties`, `items`) and
a template; `reads` and `acts` have most routes. Everything works by links and forms: the script only replaces rows in
place and adds keys.
"""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from holdfast.serve.pages import acts, devices, duties, items, reads, start
from holdfast.serve.site import Site


def routes(site: Site) -> list[BaseRoute]:
    """Return the routes of all pages, and of their static files."""
    static = StaticFiles(directory=Path(__file__).parent / "static")
    return [
        *reads.routes(site),
        *acts.routes(site),
        *devices.routes(site),
        *start.routes(site),
        *duties.routes(site),
        *items.routes(site),
        Mount("/static", static),
    ]
