"""A whole mission as `holdfast demo --mission` runs it, whose workers and judges have every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.demos import MINI, known_home, mission, sound


@pytest.fixture
def home(holdfast_home: Path) -> Path:
    """A home that knows what was found out about the library before."""
    return known_home(holdfast_home, MINI)


@pytest.mark.faults
def test_every_fault_is_met(home: Path) -> None:
    worker = ("early_done", "tamper.delete_test", "wrong_body", "regress", "wander", "anxious", "stuck")
    judge = ("lenient", "silent", "contradicts", "crash")
    words = [word for kind in worker for word in ("--fault", f"{kind}:0.15")]
    words += [word for kind in judge for word in ("--fault", f"{kind}:0.15")]
    said = mission(home, *words, "--rubric-share", "0.3", "--seed", "7", "--workers", "2")
    result = said.lines[-1]
    sound(result)
    assert said.code in (0, 1, 3), said.err
    assert (said.code == 0) <= (result["suite_green"] and result["rubric_false"] == 0)
    assert result["rubric_criteria"] == 2
    assert result["status"] == ("parked" if said.code == 3 else "done")
    faults = result["faults"]
    assert sum(each["had"] for each in faults.values()) >= 4, faults
    for kind in ("early_done", "tamper", "wander", "anxious", "stuck", "silent", "contradicts", "crash"):
        if kind in faults:
            assert faults[kind]["through"] == 0, (kind, faults)
    assert result["rubric_false"] <= result["rubric_passed"]
