"""SIGKILL right before and right after every append of a golden run: nothing is lost or done twice."""

from __future__ import annotations

import signal
from argparse import Namespace
from pathlib import Path

import anyio
import pytest

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.running.interrupted import offer_to_end
from holdfast.app.settings.config import Settings
from holdfast.facts.tool import ToolDispatched, ToolResult
from tests.faults.boundaries import Boundary, Golden, golden_run, killed_at
from tests.faults.brains import Nursery, wait_for
from tests.faults.lanes import none_broken, verdict
from tests.faults.seams import Seam
from tests.faults.story import EFFECTS, GOLDEN, open_session, slow, story, turn


def all_killed_at(base: Path, brains: Nursery, golden: Golden, boundaries: list[Boundary], *, sandbox: bool) -> None:
    """Kill at each of these; every promise must hold at every one."""

    def run(boundary: Boundary) -> list[str]:
        home = base / f"{boundary.nth}-{boundary.side}"
        return killed_at(open_session(home, GOLDEN, sandbox=sandbox), brains, golden, boundary)

    none_broken(verdict(run, boundaries), "around an append")
    print(f"{len(boundaries)} boundaries of {len(golden.appends)} appends, {len(golden.record.events)} events")


def test_a_golden_run_has_about_sixty_events(tmp_path: Path, brains: Nursery) -> None:
    golden = golden_run(tmp_path / "golden", brains, sandbox=True)
    assert 62 <= len(golden.record.events) <= 76
    assert len(golden.record.facts(ToolDispatched)) == len(golden.record.facts(ToolResult)) == 12


@pytest.mark.parametrize("sandbox", [True, False], ids=["bubblewrap", "unsandboxed"])
def test_killed_around_an_append(tmp_path: Path, brains: Nursery, sandbox: bool) -> None:
    golden = golden_run(tmp_path / "golden", brains, sandbox=sandbox)
    boundaries = golden.spread()
    assert len(boundaries) >= 12
    all_killed_at(tmp_path, brains, golden, boundaries[::3] if sandbox else boundaries[1::4], sandbox=sandbox)


@pytest.mark.parametrize("begun", [False, True])
def test_only_a_command_that_runs_is_said_to_run(
    tmp_path: Path, brains: Nursery, capsys: pytest.CaptureFixture[str], begun: bool
) -> None:
    """The brain is killed between the dispatch of a command and its start, or while the command runs."""
    session = open_session(tmp_path / "home", story(turn("", slow("long", 60.0)), keys=("long",)), sandbox=False)
    seam = Seam("append", 1, "after", "kill", "tool.dispatched")
    brain = brains.wake(session.home, session.session_id, *([] if begun else [seam]))
    if begun:
        wait_for(lambda: (session.workspace / EFFECTS).exists() or brain.dead.is_set(), "the command runs")
        brain.send(signal.SIGKILL)
    assert brain.wait() == -9
    settings = Settings(home=str(session.home))

    async def offered() -> None:
        async with open_runtime(settings) as runtime:
            await offer_to_end(Call(Namespace(json=True), settings), runtime, session.session_id)

    anyio.run(offered)
    assert ("still running under its supervisor" in capsys.readouterr().err) == begun


@pytest.mark.faults
@pytest.mark.parametrize("sandbox", [True, False], ids=["bubblewrap", "unsandboxed"])
def test_killed_around_every_append(tmp_path: Path, brains: Nursery, sandbox: bool) -> None:
    golden = golden_run(tmp_path / "golden", brains, sandbox=sandbox)
    all_killed_at(tmp_path, brains, golden, golden.every(), sandbox=sandbox)
