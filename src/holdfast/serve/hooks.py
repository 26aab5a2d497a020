"""Webhooks of duties: `POST /hooks/DUTY/TRIGGER`. A delivery proves its sender itself and needs no login.

A 2xx is sent only after the event is durable in the log.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.serve.gate import Refusal
from holdfast.serve.site import Site
from holdfast.service.duties.deliveries import Deliveries
from holdfast.sources.webhook import STATUS, WebhookRefused

RETRY_S = 30
"""Time after which the sender may try again when the queue is full, in seconds."""


def routes(site: Site) -> list[Route]:
    """Return the route of webhooks."""
    deliveries = Deliveries(site.store, site.store, site.store, site.kinds, site.clock, site.entropy, site.secret)

    async def deliver(request: Request) -> Response:
        """Take one delivery: 202 for a new event, 200 for a repeated one."""
        words, headers = request.path_params, dict(request.headers)
        try:
            receipt = await deliveries.deliver(words["duty"], words["trigger"], headers, await request.body())
        except WebhookRefused as error:
            raise Refusal(STATUS[error.problem], error.problem, str(error)) from error
        if receipt is None:
            text = "the duty's queue of events is full; nothing was recorded: send it again later"
            full = {"error": {"type": "queue_full", "message": text}}
            return JSONResponse(full, 503, headers={"retry-after": str(RETRY_S)})
        return JSONResponse({"accepted": True, "duplicate": receipt.duplicate}, 200 if receipt.duplicate else 202)

    return [Route("/hooks/{duty}/{trigger}", deliver, methods=["POST"])]
