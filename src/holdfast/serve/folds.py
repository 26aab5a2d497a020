"""States of sessions for pages and the API. A long log is folded by another process, once, and leaves checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

import anyio
import anyio.to_thread

from holdfast.brain.points import Checkpoint, Point, point_at
from holdfast.brain.recall import fold_digest, recall
from holdfast.log.base import Index, Log, Snapshots
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds, State

P = ParamSpec("P")
T = TypeVar("T")

NEAR = 1_000
"""Number of events that are folded in this process for one response, and the distance between checkpoints."""

KEPT_BYTES = 64_000_000
"""Bytes of all checkpoints in memory."""

Ahead = Callable[[SessionRow, int, Checkpoint | None], Awaitable[list[Checkpoint]]]
"""Fold a session from a checkpoint through an event in another process, and return checkpoints on the way."""


class Store(Log, Index, Snapshots, Protocol):
    """The log as folds need it."""


async def apart(query: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a query that folds logs in a thread with an event loop of its own, and return its result."""
    return await anyio.to_thread.run_sync(anyio.run, partial(query, *args, **kwargs))


class Folds:
    """States of the sessions of a home."""

    def __init__(self, store: Store, kinds: Kinds, ahead: Ahead) -> None:
        self._store = store
        self._kinds = kinds
        self._ahead = ahead
        self._folding = anyio.Lock()
        self._kept: dict[str, list[Checkpoint]] = {}
        """Session → its checkpoints, in order; the session used last is the last one."""

    def quick(self, session_id: str, seq: int) -> bool:
        """True if the state after this event is available without folding a long log."""
        kept = self._kept.get(session_id)
        return seq <= NEAR + (kept[-1].seq if kept else 0)

    async def point(self, row: SessionRow, seq: int) -> Point:
        """Return the point of a session after an event. Raises as `point_at`."""
        start = await self._start(row, min(seq, row.head))
        return await apart(point_at, self._store, row, seq, self._kinds, start, NEAR)

    async def state(self, session_id: str) -> State:
        """Return the state of a session now."""
        row = await self._store.find(session_id)
        if row.head > NEAR:
            snapshot = await self._store.load(row.session_id, fold_digest())
            if row.head - (snapshot.seq if snapshot is not None else 0) > NEAR:
                return (await self.point(row, row.head)).state
        state, _ = await apart(recall, row.session_id, self._store, self._store, self._kinds)
        return state

    async def _start(self, row: SessionRow, seq: int) -> Checkpoint | None:
        """Return the nearest checkpoint at or before an event, after making those that are missing up to it."""
        name = row.session_id
        if not self.quick(name, seq):
            async with self._folding:  # one long fold at a time: the other cores are for sessions
                if not self.quick(name, seq):
                    kept = self._kept.get(name, [])
                    more = await self._ahead(row, seq, kept[-1] if kept else None)
                    self._keep(name, [*kept, *more])
        if name in self._kept:
            self._kept[name] = self._kept.pop(name)
        before = [each for each in self._kept.get(name, ()) if each.seq <= seq]
        return before[-1] if before else None

    def _keep(self, name: str, kept: list[Checkpoint]) -> None:
        """Keep the checkpoints of a session: those of others make room, then every second one of its own."""
        self._kept.pop(name, None)
        while self._kept and size(kept, *self._kept.values()) > KEPT_BYTES:
            del self._kept[next(iter(self._kept))]
        while len(kept) > 1 and size(kept) > KEPT_BYTES:
            kept = kept[-1::-2][::-1]
        self._kept[name] = kept


def size(*kept: list[Checkpoint]) -> int:
    """Return the bytes of checkpoints."""
    return sum(len(each.state) + len(each.files) for checkpoints in kept for each in checkpoints)
