"""SIGKILL right before and right after every append of a golden run: nothing is lost or done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.facts.tool import ToolDispatched, ToolResult
from tests.faults.boundaries import Boundary, Golden, golden_run, killed_at
from tests.faults.brains import Nursery
from tests.faults.lanes import none_broken, verdict
from tests.faults.story import GOLDEN, open_session


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
    all_killed_at(tmp_path, brains, golden, boundaries[::2] if sandbox else boundaries[1::4], sandbox=sandbox)


@pytest.mark.faults
@pytest.mark.parametrize("sandbox", [True, False], ids=["bubblewrap", "unsandboxed"])
def test_killed_around_every_append(tmp_path: Path, brains: Nursery, sandbox: bool) -> None:
    golden = golden_run(tmp_path / "golden", brains, sandbox=sandbox)
    all_killed_at(tmp_path, brains, golden, golden.every(), sandbox=sandbox)
