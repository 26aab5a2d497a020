"""Hands that are ended, or hang, while they are being made: nothing stays, and others are made."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from holdfast.errors import HandsError, HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.session import Limits, Workspace
from holdfast.hands import launch
from holdfast.hands.base import Hands, HandsSpec
from holdfast.hands.box import processes
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.fake.provider import FakeProvider
from holdfast.hands.launch import Lives
from tests.brain.stage import Stage, turn
from tests.faults.victims import supervisors
from tests.support.child import command_of
from tests.support.waiting import PATIENCE_S

SPEC = "hnd_1"


class Hanging:
    """Real hands whose sandbox never comes up: the supervisor waits for it. `first` says it began."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.sockets = base / "run"
        self.workspace = base / "work"
        program = base / "bwrap"
        program.write_text("#!/bin/sh\nexec sleep 600\n")
        program.chmod(0o755)
        self.workspace.mkdir()
        self.sockets.mkdir(mode=0o700)
        hands = self.home / "hands"
        self.provider = BubblewrapProvider(
            hands, sockets=self.sockets, lives=Lives(hello_s=300.0), program=str(program)
        )

    async def provision(self) -> Hands:
        """Make hands; it hangs until the supervisor or somebody's patience ends."""
        return await self.provider.provision(HandsSpec("ses_1", SPEC, Workspace(str(self.workspace), True)), 1)

    async def send(self, number: int) -> None:
        """Signal the supervisor once it waits for its sandbox; end what stands for that."""
        with anyio.fail_after(PATIENCE_S):
            while not (found := self._waiting()):  # noqa: ASYNC110 - other processes, which set no event of ours
                await anyio.sleep(0.002)
        supervisor, sandbox = found
        os.kill(supervisor, number)
        os.kill(sandbox, signal.SIGKILL)

    def _waiting(self) -> tuple[int, int] | None:
        """The supervisor and the program that it takes for a sandbox."""
        for supervisor in supervisors(self.home).values():
            for entry in processes.list_all().values():
                if entry.parent == supervisor and b"sleep" in command_of(entry.pid):
                    return supervisor, entry.pid
        return None

    def nothing_is_left(self) -> None:
        """No process, no folder, no socket, no place for a mount."""
        assert supervisors(self.home) == {}
        assert list((self.home / "hands").iterdir()) == []
        assert list(self.sockets.iterdir()) == []
        assert list(self.workspace.iterdir()) == []


async def test_a_supervisor_killed_while_it_starts(tmp_path: Path) -> None:
    hanging = Hanging(tmp_path)
    async with anyio.create_task_group() as group:
        group.start_soon(hanging.send, signal.SIGKILL)
        with pytest.raises(HandsLost, match="was ended while it started"):
            await hanging.provision()
    hanging.nothing_is_left()


async def test_a_supervisor_stopped_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = Hanging(tmp_path)
    monkeypatch.setattr(launch, "READY_S", 1.0)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(hanging.send, signal.SIGSTOP)
            with pytest.raises(HandsError, match="did not start within"):
                await hanging.provision()
    hanging.nothing_is_left()


class Dying(FakeProvider):
    """Hands in memory of which the first `deaths` are ended while they start."""

    deaths = 2

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Make hands, or lose them on the way."""
        if self.deaths:
            self.deaths -= 1
            raise HandsLost("the supervisor of the hands was ended while it started")
        return await super().provision(spec, epoch)


@asynccontextmanager
async def with_dying_hands(deaths: int) -> AsyncIterator[tuple[Stage, Dying]]:
    """An opened session on hands that die so often while they start."""
    stage = Stage([turn("", ("bash", {"command": "make"})), turn("Built.")])
    dying = Dying(stage.clock)
    dying.deaths = deaths
    stage.doors = replace(stage.doors, hands=dying)
    await stage.open()
    yield stage, dying


PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}
USAGE = {"input_tokens": 1000, "output_tokens": 0}


async def test_hands_made_at_once_are_not_made_for_a_request_that_money_does_not_allow() -> None:
    stage = Stage([turn("Hello.", usage=USAGE)], price=PRICE, limits=Limits(budget_pico=1))
    stage.doors = replace(stage.doors, provisioning="eager")
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.reason == "budget"
    assert await stage.facts(HandsProvisioned) == []


async def test_a_request_without_the_hands_that_it_waits_for_costs_nothing() -> None:
    stage = Stage([turn("Hello.", usage=USAGE)], price=PRICE, limits=Limits(budget_pico=10**12))
    dying = Dying(stage.clock)
    dying.deaths = 3
    stage.doors = replace(stage.doors, hands=dying, provisioning="eager")
    with pytest.raises(HandsLost):
        await stage.run()
    (end,) = await stage.facts(ModelRequestEnd)
    assert (end.outcome, end.cost_pico) == ("cancelled", 0)
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"


async def test_a_brain_makes_others() -> None:
    async with with_dying_hands(2) as (stage, _):
        outcome = await stage.wake()
        assert outcome.ended is not None
        assert outcome.ended.status == "done"
        assert len(await stage.facts(HandsProvisioned)) == 1


async def test_a_brain_does_not_make_hands_for_ever() -> None:
    async with with_dying_hands(100) as (stage, dying):
        with pytest.raises(HandsLost):
            await stage.wake()
        assert dying.deaths == 97
        assert (await stage.types())[-2:] == ["session.error", "shift.ended"]
        dying.deaths = 0
        outcome = await stage.wake()
        assert outcome.ended is not None
        assert outcome.ended.status == "done"
