"""A provider that does not answer: how often it is asked, and how long a command in the foreground waits for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import anyio
import pytest

from holdfast.app.running.outages import Outages
from holdfast.brain.wake import wake
from holdfast.errors import ModelError
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.model.base import ModelRequest, StreamPart
from holdfast.session.rows import SessionRow
from tests.brain.stage import Stage, WatchedModel, turn
from tests.fleet.clock import HOUR_S, ManualClock, settle
from tests.support.waiting import PATIENCE_S

MINUTE_S = 60.0


class Down(WatchedModel):
    """A model that cannot be reached until a time."""

    def __init__(self, stage: Stage, clock: ManualClock, up_s: float) -> None:
        super().__init__(stage.model.inner)
        self.clock, self.up_s = clock, up_s
        self.asked_s: list[float] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Refused, or the script's parts."""
        self.asked_s.append(self.clock.monotonic_s())
        if self.clock.monotonic_s() < self.up_s:
            raise ModelError("unavailable", "no connection")
        async for part in super().stream(request):
            yield part


@dataclass
class Night:
    """One session in the foreground, whose provider is down for a while."""

    down_s: float
    wait_s: float
    clock: ManualClock = field(default_factory=ManualClock)
    told: list[str] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self.stage = Stage([turn("here")], clock=self.clock)
        self.model = Down(self.stage, self.clock, self.clock.monotonic_s() + self.down_s)
        self.stage.doors = replace(self.stage.doors, model=lambda name: self.model)

    async def _command(self) -> None:
        session_id, boot_id = self.stage.session_id, self.stage.doors.worker.boot_id
        waits = Outages(self.told.append, self.clock, self.wait_s).waits
        dispatcher = InlineDispatcher(self.stage.store, self.clock, boot_id=boot_id, only=session_id, waits=waits)

        async def handle(each: str) -> None:
            await wake(each, self.stage.doors)

        await dispatcher.run(handle)
        self.ended = True

    async def passes(self, seconds: float) -> SessionRow:
        """Run the command for so long; returns how the session stands then."""
        await self.stage.open()
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(self._command)
                await self.clock.pass_(seconds)
                await settle()
                group.cancel_scope.cancel()
        return await self.stage.store.find(self.stage.session_id)


@pytest.mark.parametrize("down_s", [9.0, 30 * MINUTE_S, pytest.param(2 * HOUR_S, marks=pytest.mark.faults)])
async def test_a_command_waits_through_an_outage(down_s: float) -> None:
    night = Night(down_s, wait_s=12 * HOUR_S)
    row = await night.passes(down_s + 6 * MINUTE_S)
    assert row.status == "done"
    assert night.ended, "the command ends with its session"
    refused = len(night.model.asked_s) - 1
    assert 3 <= refused <= 20 + down_s / (2 * MINUTE_S), "about one request each two and a half minutes"
    waits_s = [after - before for before, after in zip(night.model.asked_s, night.model.asked_s[1:], strict=False)]
    assert min(waits_s) >= 1.0
    assert max(waits_s) <= 5 * MINUTE_S + 2.0
    assert len(night.told) <= refused


async def test_the_wait_is_told_with_its_end() -> None:
    night = Night(HOUR_S, wait_s=12 * HOUR_S)
    await night.passes(10 * MINUTE_S)
    first = night.told[0]
    assert "waits for its provider until" in first
    assert "no connection" in first
    assert len(set(night.told)) == len(night.told), "each wait is told once"


async def test_a_longer_outage_ends_the_command_and_leaves_the_session_parked() -> None:
    night = Night(HOUR_S, wait_s=20 * MINUTE_S)
    row = await night.passes(30 * MINUTE_S)
    assert night.ended
    assert (row.status, row.reason) == ("parked", "provider")
    assert row.due_us is not None


async def test_without_patience_the_first_park_ends_the_command() -> None:
    night = Night(HOUR_S, wait_s=0.0)
    row = await night.passes(2 * MINUTE_S)
    assert night.ended
    assert (row.status, row.reason, night.told) == ("parked", "provider", [])


def test_each_outage_has_the_whole_wait() -> None:
    clock = ManualClock()
    began_us = clock.now_us()

    def parked(at_s: float, turns: int) -> SessionRow:
        now_us = began_us + int(at_s * 1_000_000)
        return SessionRow(
            session_id="ses_1", key="", goal="g", model="m", workspace="/w", accounts=(), created_us=began_us,
            updated_us=now_us, head=5 + int(at_s), head_hash=b"", epoch=1, status="parked", reason="provider",
            due_us=now_us + 60_000_000, turns=turns,
        )  # fmt: skip

    outages = Outages(lambda text: None, clock, 10 * MINUTE_S)
    assert outages.waits([parked(0, turns=1)])
    assert outages.waits([parked(8 * MINUTE_S, turns=1)])
    assert not outages.waits([parked(9.5 * MINUTE_S, turns=1)]), "the next request would be too late"
    assert outages.waits([parked(9.5 * MINUTE_S, turns=2)]), "it has answered since"
    assert not outages.waits([])
