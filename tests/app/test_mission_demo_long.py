"""Whole missions on a real library, and long ones on our own: minutes each, so for `make faults`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.kinds.mission.fold.state import LAST
from tests.app.demos import COST_USD, MINI, keep_cache, killed, known_home, mission, sound
from tests.app.terminal import Type, ended, spawn

pytestmark = pytest.mark.faults

TINYDB = "tinydb==4.9.0"

JUDGES = ("--fault", "lenient:0.3", "--fault", "silent:0.15", "--fault", "contradicts:0.15", "--fault", "crash:0.15")


@pytest.fixture
def home(holdfast_home: Path) -> Path:
    """A home that knows what was found out about the library before."""
    return known_home(holdfast_home, TINYDB)


@pytest.fixture
def small_home(holdfast_home: Path) -> Path:
    """The same for the small library of our own."""
    return known_home(holdfast_home, MINI)


def on_tinydb(home: Path, *words: str) -> dict[str, Any]:
    """The result of a mission on all of tinydb."""
    return on(TINYDB, home, *words)


def on(library: str, home: Path, *words: str) -> dict[str, Any]:
    """The result of a mission on all of a library. Skips where the library cannot be had."""
    command = ("demo", "--mission", "--library", library, "--workers", "4", "--json", *words)
    said = ended(spawn(*command), timeout_s=3_600)
    if said.code == 5 and "could not be fetched" in said.err:
        pytest.skip(said.err.splitlines()[-1])
    keep_cache(home, library)
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
    result = on_tinydb(home)
    whole(result)
    assert result["faults"] == {}
    assert result["sessions"]["worker"] == result["items"]


def test_killed_twenty_times(home: Path) -> None:
    result = on_tinydb(home, "--kills", "20", "--seed", "5")
    whole(result)
    assert result["kills"] == 20
    assert result["presumed"] <= 20 * (4 + 2)


@pytest.mark.parametrize("library", [TINYDB, "cachetools==8.0.0", "voluptuous==0.16.0"])
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_bad_workers_and_judges(holdfast_home: Path, library: str, seed: str) -> None:
    workers = ("--fault", "early_done:0.3", "--fault", "wrong_body:0.3", "--fault", "tamper:0.3")
    result = on(library, known_home(holdfast_home, library), *workers, *JUDGES, "--rubric-share", "0.3", "--seed", seed)
    assert result["exit_code"] in (0, 3)
    assert result["exit_code"] == 3 or result["suite_green"]
    assert result["faults"].get("tamper", {}).get("through", 0) == 0
    met = set(result["said_met"]) & set(result["met"])
    assert len(met) + result["rubric_criteria"] >= len(result["said_met"])
    for kind in ("silent", "contradicts", "crash"):
        assert result["faults"].get(kind, {}).get("through", 0) == 0


def test_wanderers_are_refused_or_listed(home: Path) -> None:
    result = on_tinydb(home, "--fault", "wander:0.5", "--seed", "1")
    assert result["faults"]["wander"]["had"] >= 4
    assert result["faults"]["wander"]["through"] == 0
    whole(result)


def test_conflicts_and_regressions_are_worked_out(home: Path) -> None:
    result = on_tinydb(home, "--fault", "conflict:0.3", "--fault", "regress:0.3", "--seed", "2")
    assert result["exit_code"] in (0, 3)
    assert {"conflict", "regress"} & set(result["faults"])


def test_killed_five_times(small_home: Path) -> None:
    killed(small_home, 5)


def test_half_the_money_then_all(small_home: Path, type: Type) -> None:
    cap = COST_USD / 2
    said = mission(small_home, "--budget", f"{cap:.4f}").went(4)
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
    # What was verified before is not verified again, except by the one proof at the end.
    logged = type("logs", name, "--json").went().lines
    started = [event for event in logged if event["type"] == "verification.started"]
    proofs = {event["verification_id"] for event in started if event["effect"].startswith(LAST)}
    assert len(proofs) == 1
    checked = [e for e in logged if e["type"] == "criterion.checked" and e["verification_id"] not in proofs]
    runs = [(event["tree"], name) for event in checked for name in event["criteria"]]
    assert len(runs) == len(set(runs))
