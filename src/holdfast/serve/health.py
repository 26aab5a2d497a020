"""Health and metrics: `/healthz`, `/readyz`, and `/metrics` in Prometheus text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from holdfast.clock import local_time
from holdfast.log.base import WorkerRow
from holdfast.serve.folds import apart
from holdfast.serve.gate import Refusal, visitor_of
from holdfast.serve.site import Site
from holdfast.service.duties import duty_rows
from holdfast.service.items.runs import oldest_us
from holdfast.service.spending import Line, spending
from holdfast.session.money import usd_float

OLDEST_ANSWER = "Age of the oldest open inbox item; 0 without one."
OLDEST_ITEM = "Age of the oldest item of a list without an outcome; 0 without one."

READY_S = 2.0
"""Time in which a server that is ready can read its log, in seconds."""

SPEND_S = 15.0
"""Time for which the spend by model and the oldest item are used again, in seconds: they follow from many sessions."""


def routes(site: Site) -> list[Route]:
    """The routes for monitors."""
    spent: tuple[float, list[Line], int | None] = (float("-inf"), [], None)

    async def healthz(request: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        """The log can be read."""
        with anyio.move_on_after(READY_S):
            await site.store.stopped()
            return JSONResponse({"status": "ok"})
        raise Refusal(503, "unavailable", f"the log cannot be read within {READY_S:.0f} seconds")

    async def metrics(request: Request) -> Response:
        nonlocal spent
        if visitor_of(request).credential.project:
            raise Refusal(403, "forbidden", "metrics concern the whole home; your key is limited to a project")
        now_s = site.clock.monotonic_s()
        if now_s - spent[0] >= SPEND_S:
            lines = await apart(spending, site.store, "model", local_time)
            spent = (now_s, lines, await oldest_us(site.store, site.store, site.kinds))
        item_age_s = (site.clock.now_us() - spent[2]) / 1e6 if spent[2] else 0.0
        _, status = await site.pulse.after(0)
        counts = msgspec.structs.asdict(status)
        oldest = await site.store.items(limit=1)
        age_s = (site.clock.now_us() - oldest[0].opened_us) / 1e6 if oldest else 0.0
        states = {state: counts[state] for state in counts if state not in ("inbox", "stopped")}
        text = "".join(
            (
                _metric("holdfast_sessions", "gauge", "Sessions by state.", "state", states),
                _metric(
                    *("holdfast_spend_dollars", "gauge", "Known spend of all sessions by model.", "model"),
                    {line.label: usd_float(line.cost.pico) or 0.0 for line in spent[1]},
                ),
                _metric("holdfast_inbox_items", "gauge", "Open inbox items.", "", {"": status.inbox}),
                _metric("holdfast_inbox_oldest_seconds", "gauge", OLDEST_ANSWER, "", {"": max(0.0, age_s)}),
                _metric("holdfast_items_oldest_seconds", "gauge", OLDEST_ITEM, "", {"": max(0.0, item_age_s)}),
                _metric(
                    *("holdfast_duty_late_seconds", "gauge", "Time since which a duty is due; 0 if it is not.", "duty"),
                    await _lateness(site),
                ),
                *(
                    _metric(f"holdfast_worker_{name}", "gauge", about, "worker", values)
                    for name, about, values in _workers(await site.store.fleet())
                ),
                _metric("holdfast_stopped", "gauge", "1 during an emergency stop.", "", {"": int(status.stopped)}),
            )
        )
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


def _workers(fleet: list[WorkerRow]) -> list[tuple[str, str, dict[str, float]]]:
    """Return what each worker of all machines holds, can hold, and when it beat last."""
    return [
        ("sessions", "Sessions that a worker runs.", {each.worker_id: each.holds for each in fleet}),
        ("capacity", "Sessions that a worker runs at most.", {each.worker_id: each.capacity for each in fleet}),
        ("beat_seconds", "Age of its latest beat.", {each.worker_id: each.beat_us / 1e6 for each in fleet}),
    ]


async def _lateness(site: Site) -> dict[str, float]:
    """Return the seconds by which each duty that can fire is late."""
    now_us = site.clock.now_us()
    found = {}
    async for row in duty_rows(site.store):
        due_us = row.due_us if row.reason != "person" else None
        found[row.key or row.session_id] = max(0.0, (now_us - due_us) / 1e6) if due_us is not None else 0.0
    return found


def _metric(name: str, kind: str, text: str, label: str, values: Mapping[str, float]) -> str:
    """Format one metric. Label values are escaped: a model's name is free text."""

    def labels(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{{{label}="{escaped}"}}' if label else ""

    lines: Iterable[str] = (f"{name}{labels(value)} {number:.12g}\n" for value, number in values.items())
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(lines)
