"""A source in memory, for tests and the simulator."""

from __future__ import annotations

from anyio.lowlevel import checkpoint

from holdfast.errors import SourceError
from holdfast.sources.base import Offered, Polled


class FakeSource:
    """A source that a test fills. A cursor is a number of events, as text. It fails while `down`."""

    def __init__(self) -> None:
        self.down = False
        self.events: list[Offered] = []

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`."""
        await checkpoint()
        if self.down:
            raise SourceError("the source is down (fake)", retryable=True)
        start = int(cursor or 0)
        taken = tuple(self.events[start : start + limit])
        after = start + len(taken)
        return Polled(taken, str(after), after < len(self.events))
