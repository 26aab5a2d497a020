"""The native API under /holdfast/v1: one table of operations, from which routes and OpenAPI description follow."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.serve.api import events, home, inbox, search, sessions
from holdfast.serve.api.openapi import document
from holdfast.serve.api.operations import PREFIX, Endpoint
from holdfast.serve.site import Site

OPERATIONS = (*sessions.OPERATIONS, *events.OPERATIONS, *inbox.OPERATIONS, *search.OPERATIONS, *home.OPERATIONS)


def routes(site: Site) -> list[Route]:
    """The routes of all operations, and of their description."""
    described = msgspec.json.encode(document(OPERATIONS))

    async def openapi(request: Request) -> Response:
        return Response(described, media_type="application/json")

    paths: dict[str, dict[str, Endpoint]] = {}
    for each in OPERATIONS:
        paths.setdefault(PREFIX + each.path, {})[each.method] = each.endpoint(site)
    return [Route(f"{PREFIX}/openapi.json", openapi), *(_route(path, methods) for path, methods in paths.items())]


def _route(path: str, methods: dict[str, Endpoint]) -> Route:
    """Return one route for all methods of a path, so that a refusal of another method lists them all."""

    async def endpoint(request: Request) -> Response:
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=list(methods))
