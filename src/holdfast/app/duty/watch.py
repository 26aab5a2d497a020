"""The directories of all duties, for a worker that begins: a duty that waits for its next sweep is not woken before."""

from __future__ import annotations

from contextlib import suppress

from holdfast.app.compose import Runtime
from holdfast.brain.doors import Bell
from holdfast.brain.recall import recall
from holdfast.errors import HoldfastError
from holdfast.kinds.duty.acts.watching import watched
from holdfast.service.duties import duty_rows


async def watch_directories(runtime: Runtime, bell: Bell) -> None:
    """Watch the directories of the duties of a home."""
    async for row in duty_rows(runtime.store):
        with suppress(HoldfastError):  # its own wake says why
            state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
            bell.watch(row.session_id, watched(state))
