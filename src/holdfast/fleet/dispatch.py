"""Who looks at which session when. A doorbell only: the lease excludes, the wake row remembers (S27).

The inline dispatcher serves one process on one machine straight from the wake rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio.lowlevel

from holdfast.clock import Clock
from holdfast.errors import LeaseHeld
from holdfast.log.base import Index

Handler = Callable[[str], Awaitable[None]]
"""Wakes the session of that id."""


class Dispatcher(Protocol):
    """Rings sessions, and runs a handler for those that are due."""

    async def ring(self, session_id: str) -> None:
        """Have that session looked at soon."""
        ...

    async def run(self, handler: Handler) -> None:
        """Call `handler` for each due session until nothing is due."""
        ...


class InlineDispatcher:
    """Runs due sessions one after another in this very task; with `only`, just that one."""

    def __init__(self, index: Index, clock: Clock, *, only: str = "") -> None:
        self._index = index
        self._clock = clock
        self._only = only
        self._rung: list[str] = []

    async def ring(self, session_id: str) -> None:
        """Have that session looked at first."""
        if session_id not in self._rung:
            self._rung.append(session_id)

    async def run(self, handler: Handler) -> None:
        """Call `handler` for each due session until nothing is due. One that is held is left to its holder."""
        while due := self._rung or await self._due():
            self._rung = []
            woken = 0
            for session_id in due:
                try:
                    await handler(session_id)
                    woken += 1
                except LeaseHeld:
                    await anyio.lowlevel.checkpoint()
            if not woken:
                return

    async def _due(self) -> list[str]:
        due = await self._index.due(self._clock.now_us())
        return [session_id for session_id in due if self._only in ("", session_id)]
