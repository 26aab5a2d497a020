"""Whole missions in the simulator: what is done is met, in every world, and planted bugs are noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.app.cli import main
from holdfast.sim.missions.rules import RULES
from holdfast.sim.missions.run import USED, MissionResult, MissionTotals, run_mission_seed, run_missions
from holdfast.sim.missions.scene import RUBRIC_SHARE, Scene
from tests.sim.planted.in_missions import BED
from tests.sim.planted.kit import Plant

SEEDS = range(10, 18)
"""Worlds that end in each way. The long form has more."""

FOUND = (41_000_852, 7_100_632, 7_101_974)
"""Seeds outside the sweeps above that once broke a rule."""

SEEDS_LONG = 500

WITHIN = 120
"""Seeds that each planted bug is given."""


def _clean(totals: MissionTotals) -> None:
    if totals.failing is not None:
        pytest.fail(totals.failing.report())


def _telling(totals: MissionTotals, seeds: int) -> None:
    """Whether these worlds had in them what the rules are about."""
    assert totals.seeds == seeds
    assert min(totals.rests["done"], totals.rests["failed"], totals.rests["parked person"]) >= seeds / 60
    assert min(totals.kills, totals.human) >= 2 * seeds
    assert totals.tempted >= seeds / 5
    assert totals.lenient > 0
    assert len(totals.used) >= seeds / 20
    assert min(totals.used) >= USED


def test_no_rule_is_violated() -> None:
    totals = run_missions(SEEDS)
    _clean(totals)
    _telling(totals, len(SEEDS))


def test_seeds_that_once_broke_a_rule_are_clean() -> None:
    _clean(run_missions(FOUND))


@pytest.mark.faults
def test_no_rule_is_violated_in_five_hundred_missions() -> None:
    totals = run_missions(range(10_000, 10_000 + SEEDS_LONG))
    _clean(totals)
    _telling(totals, SEEDS_LONG)


def test_a_seed_is_one_world() -> None:
    seed = next(seed for seed in range(99) if run_mission_seed(seed).kills)
    assert run_mission_seed(seed) == run_mission_seed(seed)


def test_rubric_lines_have_their_share() -> None:
    scenes = [Scene(seed) for seed in range(400)]
    criteria = sum(len(scene.wants) - 1 for scene in scenes)
    assert abs(sum(len(scene.rubric) for scene in scenes) / criteria - RUBRIC_SHARE) < 0.05


def _hunt(plant: Plant) -> MissionResult | None:
    """The first seed whose world its rule finds wrong, None when none does."""
    with pytest.MonkeyPatch.context() as patch:
        plant.planting(patch)
        for seed in range(plant.first, plant.first + WITHIN):
            result = run_mission_seed(seed, plant.invariant)
            if any(each.invariant == plant.invariant for each in result.violations):
                return result
    return None


@pytest.mark.parametrize("plant", BED.plants, ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    assert _hunt(plant) is not None, f"{plant.rule}: {plant.invariant} notices nothing"


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    rows = [f"| `{each.__name__}` | {' '.join((each.__doc__ or '').split())} |" for each in RULES]
    assert page.partition("| rule |")[2].split("|---|---|\n")[1].splitlines() == rows


def test_planted_bugs_are_of_rules() -> None:
    found = {plant.invariant for plant in BED.plants}
    assert found <= {each.__name__ for each in RULES}
    assert len(BED.plants) >= 20


def test_missions_are_run_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--missions", "--seeds", "2", "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["seeds"], last["violations"], last["failing_seed"]) == (2, 0, None)
    assert sum(last["rests"].values()) == 2


def test_a_failing_mission_is_told_with_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = next(each for each in BED.plants if each.name == "commits_of_people_count_as_taken_in")
    plant.planting(monkeypatch)
    assert main(["sim", "--missions", "--seeds", "40"]) == 1
    said = capsys.readouterr().out
    assert "people_lose_nothing" in said
    assert "again: holdfast sim --missions --first " in said
