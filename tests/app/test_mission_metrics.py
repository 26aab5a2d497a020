"""Missions with a metric, in real hands: it improves step by step, and a person is asked where it does not."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.app.terminal import Type, bash, script
from tests.app.test_mission_lint import make
from tests.app.test_missions import git, hand_in, run

MAIN = "holdfast/feature-list/main"

METRIC = {"command": "python3 bench.py", "target": 8, "tolerance": 1, "direction": "at_least"}
ITEMS = [
    {"id": "fast", "description": "It is fast", "check": {"metric": METRIC}, "passes": False},
    {"id": "tidy", "description": "There is a note", "check": "grep -q note note.txt", "passes": False},
]
POLICY = 'planner = "items"\njudge = "off"\nplateau = 2\nmax_attempts = 1\nmax_iterations = 1\nworkers = 1\n'
BENCH = "print('loops', open('speed.txt').read())\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository whose speed is 1."""
    files = {"speed.txt": "1\n", "bench.py": BENCH, "mission.toml": POLICY}
    return make(tmp_path / "repo", {**files, "feature_list.json": json.dumps(ITEMS) + "\n"})


def faster(tmp_path: Path, step: str) -> str:
    """A worker that does all it can at once."""
    command = f"echo $(( $(cat speed.txt) + {step} )) > speed.txt; echo a note > note.txt"
    return script(tmp_path / "worker.json", bash(command), hand_in())


def test_a_metric_improves_until_its_target(type: Type, repo: Path, tmp_path: Path) -> None:
    run(type, repo, faster(tmp_path, "2")).went(0)
    board = type("mission", "show", "m", "--json").went(0).lines[0]
    values = board["criteria"]["fast.check"]["values"]
    assert (values[0], values[-1]) == (1, int(git(repo, "show", f"{MAIN}:speed.txt")))
    assert values[-1] >= 7
    assert all(later > earlier + 1 for earlier, later in pairwise(values))
    shown = " → ".join(f"{value:g}" for value in values)
    assert f"fast.check: {shown}, target at least 8" in type("mission", "show", "m").went(0).out
    assert sum(task["status"] == "merged" for task in board["tasks"].values()) >= 3
    type("verify").went(0)


@pytest.mark.faults
def test_a_plateau_is_a_persons_matter(type: Type, repo: Path, tmp_path: Path) -> None:
    said = run(type, repo, faster(tmp_path, "1")).went(3)
    assert "a person is asked" in said.err
    assert git(repo, "show", f"{MAIN}:speed.txt") == "2", "what is not worse is merged with other work"
    (item,) = [each for each in type("inbox", "--json").went(0).lines if each.get("kind") == "escalation"]
    assert "fast.check did not improve in 2 tasks: 1 → 2, target at least 8" in json.dumps(item, ensure_ascii=False)
    type("deny", item["item_id"], "--note", "enough").went(0)
    type("wake", "m").went(1)


def test_work_that_makes_a_metric_worse_is_not_merged(type: Type, repo: Path, tmp_path: Path) -> None:
    run(type, repo, faster(tmp_path, "-5")).went(3)
    assert git(repo, "show", f"{MAIN}:speed.txt") == "1"
    board = type("mission", "show", "m", "--json").went(0).lines[0]
    assert not any(each["passes"] for each in board["criteria"].values())
