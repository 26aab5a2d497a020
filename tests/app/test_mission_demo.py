"""A whole mission as `holdfast demo --mission` runs it, on the small library of our own: no network, real hands.

About 60 s on two quiet processors. The same on real libraries is in `test_mission_demo_long.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import Said, Type, ended, spawn

MINI = "mini==1.0"

CACHE = Path(tempfile.gettempdir()) / f"holdfast-tests-missions-{os.getuid()}"
"""Which tests need which bodies is found out once, and holds for all later runs."""

COST_USD = 0.307
"""What a mission without faults costs at the oracle's nominal price, to within some percent."""


@pytest.fixture
def home(holdfast_home: Path) -> Path:
    """A home that knows what was found out about the library before."""
    CACHE.mkdir(mode=0o711, exist_ok=True)
    assert CACHE.stat().st_uid == os.getuid()
    holdfast_home.mkdir(mode=0o711)
    shutil.copytree(CACHE, holdfast_home / "cache")
    return holdfast_home


def mission(home: Path, *words: str) -> Said:
    """`holdfast demo --mission` on the small library."""
    said = ended(spawn("demo", "--mission", "--library", MINI, "--json", *words), timeout_s=400)
    shutil.copytree(home / "cache", CACHE, dirs_exist_ok=True)
    return said


def sound(result: dict[str, Any]) -> None:
    """Whatever came of it: nothing that the harness vouches for is untrue, and nothing was found out twice."""
    assert result["false_done"] == []
    assert result["red_commits"] == []
    assert result["brief_wrong"] == []
    assert result["verdicts_again"] == 0
    assert result["chain_ok"]


def test_killed_five_times(home: Path) -> None:
    said = mission(home, "--kills", "5", "--seed", "1").went()
    *events, result = said.lines
    sound(result)
    assert result["status"] == "done"
    assert result["kills"] == said.err.count("SIGKILL to the runtime") == 5
    assert result["suite_green"]
    assert result["tests"] == {"passed": 59, "failed": 0, "errors": 0, "skipped": 0}
    assert len(result["met"]) == result["criteria"] == len(result["said_met"])
    # A request that died with its process is asked again: one for each session that was at work.
    assert result["presumed"] <= 5 * 2
    assert result["cost_usd"] <= COST_USD * 1.5
    types = Counter(event["type"] for event in events)
    assert types["contract.sealed"] == types["mission.opened"] == types["mission.planned"] == 1
    assert types["task.started"] == result["items"]
    assert types["mission.finished"] == 1


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


def test_half_the_money_then_all(home: Path, type: Type) -> None:
    cap = COST_USD / 2
    said = mission(home, "--budget", f"{cap:.4f}").went(4)
    result = said.lines[-1]
    sound(result)
    assert (result["status"], result["stop_reason"]) == ("parked", "budget")
    assert 0.9 * cap <= result["cost_usd"] <= cap + 1e-9
    assert not result["suite_green"]
    name = result["session_id"]
    before = type("logs", name, "--json", "--type", "repo.merged").went().lines
    type("budget", name, "--set", "1").went()  # which has another process wake it
    type("wake", name, "--json").went()
    assert len(type("logs", name, "--json", "--type", "repo.merged").went().lines) > len(before)
    done = type("logs", name, "--json", "--type", "mission.finished").went().lines
    assert [(event["status"], event.get("unmet", [])) for event in done] == [("done", [])]
    # What was verified before is not verified again.
    logged = type("logs", name, "--json").went().lines
    runs = [(e["tree"], name) for e in logged if e["type"] == "criterion.checked" for name in e["criteria"]]
    assert len(runs) == len(set(runs))


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (("--fault", "erly_done"), ("did you mean early_done", "--fault early_done:0.3")),
        (("--fault", "early_done:2"), ("from 0 to 1",)),
        (("--fault", "tamper.nothing_such"), ("there is no tamper 'nothing_such'",)),
        (("--fault", "stuck.x"), ("there are",)),
        (("--workers", "0"), ("--workers 0 has to be from 1",)),
        (("--kills", "-1"), ("--kills -1 has to be from 0",)),
        (("--rubric-share", "1.5"), ("from 0 to 1",)),
        (("--budget", "much"), ("much",)),
        (("--library", "mini"), ("NAME==VERSION",)),
        (("--model", "scripted:x.json"), ("leave them out",)),
        (("--library", MINI, "--with", "pyyaml"), ("--with pyyaml", "needs no package")),
    ],
)
def test_bad_words(type: Type, holdfast_home: Path, words: tuple[str, ...], pieces: tuple[str, ...]) -> None:
    type("demo", "--mission", *words).refused(2, *pieces)


def test_there_is_a_result_line_whatever_happens(type: Type, holdfast_home: Path) -> None:
    said = type("demo", "--mission", "--library", MINI, "--with", "pyyaml", "--json")
    (result,) = said.lines
    assert (said.code, result["type"], result["status"], result["exit_code"]) == (2, "result", "error", 2)
    assert "needs no package" in result["error"]


def test_words_of_missions_alone(type: Type, holdfast_home: Path) -> None:
    type("demo", "--kills", "3").refused(2, "--kills goes with --mission")
    assert not holdfast_home.exists()


def test_a_folder_that_is_in_use(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    type("demo", "--mission", "--library", MINI, "--keep", tmp_path / "kept").refused(2, "not an empty folder")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine.txt"]
