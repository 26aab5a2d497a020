"""Whole missions on a real library: minutes each, so for `make faults`."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import ended, spawn

pytestmark = pytest.mark.faults

CACHE = Path(tempfile.gettempdir()) / f"holdfast-tests-missions-{os.getuid()}"
"""Fetched, and found out, once."""

TINYDB = "tinydb==4.9.0"

JUDGES = ("--fault", "lenient:0.3", "--fault", "silent:0.15", "--fault", "contradicts:0.15", "--fault", "crash:0.15")


@pytest.fixture
def home(holdfast_home: Path) -> Path:
    """A home that knows what was found out about the library before."""
    CACHE.mkdir(mode=0o711, exist_ok=True)
    assert CACHE.stat().st_uid == os.getuid()
    holdfast_home.mkdir(mode=0o711)
    shutil.copytree(CACHE, holdfast_home / "cache")
    return holdfast_home


def mission(home: Path, *words: str) -> dict[str, Any]:
    """The result of a mission on all of tinydb. Skips where the library cannot be had."""
    command = ("demo", "--mission", "--library", TINYDB, "--workers", "4", "--json", *words)
    said = ended(spawn(*command), timeout_s=3_600)
    if said.code == 5 and "could not be fetched" in said.err:
        pytest.skip(said.err.splitlines()[-1])
    shutil.copytree(home / "cache", CACHE, dirs_exist_ok=True)
    result = said.lines[-1]
    assert result["exit_code"] == said.code
    assert result["false_done"] == []
    assert result["red_commits"] == []
    assert result["brief_wrong"] == []
    assert result["verdicts_again"] == 0
    assert result["chain_ok"]
    return result


def whole(result: dict[str, Any]) -> None:
    """Everything is there, by the library's own suite."""
    assert result["exit_code"] == 0
    assert result["suite_green"]
    assert result["tests"] == {"passed": 219, "failed": 0, "errors": 0, "skipped": 0}
    assert len(result["met"]) == result["criteria"] >= 15


def test_perfect(home: Path) -> None:
    result = mission(home)
    whole(result)
    assert result["faults"] == {}
    assert result["sessions"]["worker"] == result["items"]


def test_killed_twenty_times(home: Path) -> None:
    result = mission(home, "--kills", "20", "--seed", "5")
    whole(result)
    assert result["kills"] == 20
    assert result["presumed"] <= 20 * (4 + 2)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_bad_workers_and_judges(home: Path, seed: str) -> None:
    faults = ("--fault", "early_done:0.3", "--fault", "wrong_body:0.3", *JUDGES)
    result = mission(home, *faults, "--rubric-share", "0.3", "--seed", seed)
    assert result["exit_code"] in (0, 3)
    met = set(result["said_met"]) & set(result["met"])
    assert len(met) + result["rubric_criteria"] >= len(result["said_met"])
    for kind in ("silent", "contradicts", "crash"):
        assert result["faults"].get(kind, {}).get("through", 0) == 0


def test_wanderers_are_refused_or_listed(home: Path) -> None:
    result = mission(home, "--fault", "wander:0.5", "--seed", "1")
    assert result["faults"]["wander"]["had"] >= 4
    assert result["faults"]["wander"]["through"] == 0
    whole(result)


def test_conflicts_and_regressions_are_worked_out(home: Path) -> None:
    result = mission(home, "--fault", "conflict:0.3", "--fault", "regress:0.3", "--seed", "2")
    assert result["exit_code"] in (0, 3)
    assert {"conflict", "regress"} & set(result["faults"])
