"""Events over the API: pages and streams; and what follows from them: briefs, files, verification."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
import msgspec
from starlette.responses import Response

from holdfast.brain.points import Point
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.kinds.mission.brief.document import Brief
from holdfast.log.verify import verify
from holdfast.serve.api.operations import Asked, Nothing, Operation
from holdfast.serve.bodies import EventPage, FilePage, FindingInfo, Verification, event_info
from holdfast.serve.folds import apart
from holdfast.serve.stream import ALIVE_S, EventStream, frame
from holdfast.service.briefs import brief_of

PAGE_MAX = 500
"""Events in a page, or in one frame of a stream."""

FRAME_BYTES = 1_000_000
"""Bytes of a frame after which no further event is added to it."""

FILE_MAX = 5_000_000
"""Bytes of a file that is downloaded; the rest is cut off."""

Position = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a position; `types` are event types, separated by commas."""

    after: Position = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = 100
    types: str = ""


async def paged(asked: Asked[EventsQuery, Nothing]) -> EventPage:
    """List the events of a session, oldest first. With `types`, a page may be short or empty before the end."""
    row, query = await asked.session(), asked.query
    page = await asked.site.store.read(row.session_id, after=query.after, limit=query.limit)
    types = frozenset(query.types.split(",")) if query.types else frozenset()
    found = [event_info(event) for event in page if not types or event.type in types]
    return EventPage(found, page[-1].seq if len(page) == query.limit else None)


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is a position; the header Last-Event-ID replaces it when a stream goes on."""

    after: Position = 0


async def streamed(asked: Asked[StreamQuery, Nothing]) -> Response:
    """Stream the events of a session: messages `events` with a list of events; their `id` is the last position."""
    row = await asked.session()
    after = asked.query.after if asked.last_event_id is None else asked.last_event_id
    store = asked.site.store

    async def frames(after: int) -> AsyncIterator[bytes | None]:
        while True:
            page = await store.read(row.session_id, after=after, limit=PAGE_MAX)
            if not page:
                yield None  # at once, so that the client knows that it is up to date
                with anyio.move_on_after(ALIVE_S):
                    await store.wait(row.session_id, after)
                continue
            parts: list[bytes] = []
            size = 0
            for event in page:
                parts.append(msgspec.json.encode(event_info(event)))
                size += len(parts[-1])
                after = event.seq
                if size > FRAME_BYTES:
                    break
            yield frame(after, "events", b"[" + b",".join(parts) + b"]")

    return EventStream(asked.site, frames(after))


class BriefQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`since` is a position; what happened up to it is left out."""

    since: Position = 0


async def briefed(asked: Asked[BriefQuery, Nothing]) -> Brief:
    """Summarize a session or mission, with all below it. Every line names its events."""
    row, site = await asked.session(), asked.site
    since_us = None
    if asked.query.since:
        if asked.query.since > row.head:
            raise UsageError(f"since={asked.query.since}: the last event of {row.session_id} is {row.head}")
        (event,) = await site.store.read(row.session_id, after=asked.query.since - 1, limit=1)
        since_us = event.at_us
    return await apart(brief_of, site.store, site.kinds, site.shelf, row, since_us=since_us)


class FilesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`at` is a position, 0 for the last event."""

    at: Position = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000


async def files(asked: Asked[FilesQuery, Nothing]) -> FilePage:
    """List the files of a session's workspace as they were after an event."""
    point = await _point(asked, asked.query.at)
    assert asked.site.shelf is not None
    found = await asked.site.shelf.files(point.kept)
    unkept = [ran.call_id for ran in point.unkept]
    return FilePage(point.state.seq, point.kept_seq, unkept, len(found), found[: asked.query.limit])


class FileQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`path` is a path from the workspace, `at` a position, 0 for the last event."""

    path: str
    at: Position = 0


async def file(asked: Asked[FileQuery, Nothing]) -> Response:
    """Download a file of a session's workspace as it was after an event."""
    point = await _point(asked, asked.query.at)
    assert asked.site.shelf is not None
    data = await asked.site.shelf.content(point.kept, asked.query.path, FILE_MAX)
    headers = {"content-disposition": "attachment", "x-holdfast-kept-seq": str(point.kept_seq)}
    return Response(data, media_type="application/octet-stream", headers=headers)


async def _point(asked: Asked[FilesQuery, Nothing] | Asked[FileQuery, Nothing], at: int) -> Point:
    row, site = await asked.session(), asked.site
    if site.shelf is None:
        raise CannotRunSafely("this machine has no git, which snapshots of workspaces need")
    point = await site.folds.point(row, at or row.head)
    if not point.kept:
        why = f": {point.trouble}" if point.trouble else ""
        raise UsageError(f"no snapshot of the workspace was taken up to event {at or row.head}{why}")
    return point


async def verified(asked: Asked[Nothing, Nothing]) -> Verification:
    """Check the hash chain of a session, and the data beside it."""
    row = await asked.session()
    found = await verify(asked.site.store, row.session_id)
    findings = [FindingInfo(each.session_id, each.seq, each.message) for each in found.findings]
    return Verification(not findings, found.sessions, found.events, findings)


OPERATIONS = (
    Operation("GET", "/sessions/{session}/events", paged, EventPage, query=EventsQuery),
    Operation(
        "GET", "/sessions/{session}/events/stream", streamed, None, query=StreamQuery, media_type="text/event-stream"
    ),
    Operation("GET", "/sessions/{session}/brief", briefed, Brief, query=BriefQuery),
    Operation("GET", "/sessions/{session}/files", files, FilePage, query=FilesQuery),
    Operation("GET", "/sessions/{session}/file", file, None, query=FileQuery, media_type="application/octet-stream"),
    Operation("GET", "/sessions/{session}/verify", verified, Verification),
)
