"""The status of a home as counts, computed once per change for all streams."""

from __future__ import annotations

from typing import Protocol, get_args

import anyio
import msgspec

from holdfast.log.base import Index, Leases, Log, Which
from holdfast.session.rows import RowStatus


class Store(Log, Index, Leases, Protocol):
    """The log as a status needs it."""


class HomeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a home. `stopped`: an emergency stop is in force."""

    running: int
    runnable: int
    parked: int
    done: int
    failed: int
    cancelled: int
    inbox: int
    stopped: bool


class Pulse:
    """The status of a home, computed once per change for all streams."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = anyio.Lock()
        self._token = 0
        self._status: HomeStatus | None = None

    async def after(self, token: int) -> tuple[int, HomeStatus]:
        """Return the newest status and its token, once the home has changed after `token`; 0 returns at once."""
        async with self._lock:
            if self._status is None or self._token <= token:
                self._token = max(token, await self._store.changed(token))
                self._status = await home_status(self._store)
            return self._token, self._status


async def home_status(store: Store) -> HomeStatus:
    """Return the counts of a home now."""
    holders = await store.holders()
    counts = {status: await store.count(Which(status=status)) for status in get_args(RowStatus)}
    held = [(await store.find(session_id)).status for session_id in holders]
    for status in held:
        counts[status] = max(0, counts[status] - 1)  # a running session counts as running alone
    return HomeStatus(
        running=len(held),
        **counts,
        inbox=len(await store.items()),
        stopped=await store.stopped() is not None,
    )
