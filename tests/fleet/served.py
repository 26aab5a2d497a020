"""One session on a stage that a service runs, under a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from holdfast.brain.wake import wake
from holdfast.errors import HoldfastError
from holdfast.fleet.dispatch import Handler
from holdfast.fleet.serve import Service
from holdfast.session.rows import SessionRow
from tests.brain.stage import Stage
from tests.fleet.clock import ManualClock, settle
from tests.support.waiting import PATIENCE_S


@dataclass
class Served:
    """What went on. `errors` are those that the service told of, with the pause until the next try."""

    stage: Stage
    clock: ManualClock
    looked_at: list[str] = field(default_factory=list)
    errors: list[tuple[str, str, float | None]] = field(default_factory=list)

    async def row(self) -> SessionRow:
        """The session's row."""
        return await self.stage.store.find(self.stage.session_id)

    async def stands(self) -> str:
        """How the session stands once everything is still."""
        await settle()
        row = await self.row()
        return f"{row.status} {row.reason}".strip()

    def failed(self, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        """What the service tells."""
        self.errors.append((session_id, str(error), again_s))


@asynccontextmanager
async def served(
    stage: Stage, clock: ManualClock, *, limit: int = 4, handler: Handler | None = None
) -> AsyncIterator[Served]:
    """A service over the stage's log while the block runs."""
    seen = Served(stage, clock)

    async def handle(session_id: str) -> None:
        seen.looked_at.append(session_id)
        await (handler(session_id) if handler is not None else wake(session_id, stage.doors))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            service = Service(stage.store, clock, boot_id=stage.doors.worker.boot_id, limit=limit, on_error=seen.failed)
            group.start_soon(service.run, handle)
            yield seen
            group.cancel_scope.cancel()
