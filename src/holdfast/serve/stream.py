"""Event streams (SSE): at most five frames a second, ended when the client leaves or the server stops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.serve.site import Site

FRAME_S = 0.2
"""Shortest time between two frames of a stream, in seconds."""

ALIVE_S = 15.0
"""Time without news after which a comment shows that the connection lives, in seconds."""


def frame(cursor: int, name: str, data: bytes) -> bytes:
    """Format one message of a stream. A client that lost the connection goes on after the last whole message."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (cursor, name.encode(), data)


class EventStream(Response):
    """A response of frames. `frames` yields None when it has no news."""

    media_type = "text/event-stream"

    def __init__(self, site: Site, frames: AsyncIterator[bytes | None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._site = site
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames until the client leaves or the server stops."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with anyio.create_task_group() as group:

            async def until(end: Callable[[], Awaitable[object]]) -> None:
                await end()
                group.cancel_scope.cancel()

            async def left() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass

            group.start_soon(until, left)
            group.start_soon(until, self._site.closing.wait)
            async for each in self._frames:
                body = b": alive\n\n" if each is None else each
                await send({"type": "http.response.body", "body": body, "more_body": True})
                if each is not None:
                    await self._site.clock.sleep(FRAME_S)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
