"""The native API under /holdfast/v1: one table of operations, from which routes and OpenAPI description follow."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.serve.api import events, home, inbox, search, sessions
from holdfast.serve.api.openapi import document
from holdfast.serve.api.operations import PREFIX
from holdfast.serve.site import Site

OPERATIONS = (*sessions.OPERATIONS, *events.OPERATIONS, *inbox.OPERATIONS, *search.OPERATIONS, *home.OPERATIONS)


def routes(site: Site) -> list[Route]:
    """The routes of all operations, and of their description."""
    described = msgspec.json.encode(document(OPERATIONS))

    async def openapi(request: Request) -> Response:
        return Response(described, media_type="application/json")

    return [Route(f"{PREFIX}/openapi.json", openapi), *(each.route(site) for each in OPERATIONS)]
