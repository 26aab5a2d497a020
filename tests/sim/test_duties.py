"""Simulated duties: clock steps, days off, two brains, crashes; and planted bugs that have to be found."""

from __future__ import annotations

import pytest

from holdfast.sim.duties.run import run_duties
from tests.sim.planted.in_duties import BED
from tests.sim.planted.kit import Plant

SEEDS = 10
"""Worlds in which a planted bug has to be found."""


@pytest.mark.parametrize("seed", range(2))
def test_no_instant_is_lost_or_fires_twice(seed: int) -> None:
    result = run_duties(seed, size=4, days=8)
    assert not result.violations, result.report()
    assert result.counts["missed"]
    assert result.counts["timeout"]


def test_a_seed_lives_the_same_way_again() -> None:
    assert run_duties(3, size=2, days=5) == run_duties(3, size=2, days=5)


def find(plant: Plant) -> int | None:
    """Return the first seed in which the invariant of a planted bug finds it, None if none does."""
    with pytest.MonkeyPatch.context() as patch:
        plant.planting(patch)
        for seed in range(plant.first, plant.first + SEEDS):
            result = run_duties(seed, size=4, days=8)
            if any(each.startswith(f"{plant.invariant}:") for each in result.violations):
                return seed
    return None


@pytest.mark.faults
@pytest.mark.parametrize("plant", BED.plants, ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    assert find(plant) is not None


@pytest.mark.parametrize("plant", BED.plants[2:-2:10], ids=lambda plant: plant.name)
def test_some_planted_bugs_are_found(plant: Plant) -> None:
    assert find(plant) is not None


@pytest.mark.faults
@pytest.mark.parametrize("seed", [*range(10), 9200009, 9210010, 9210043])
def test_thirty_days_of_two_hundred_duties(seed: int) -> None:
    result = run_duties(seed)
    assert not result.violations, result.report()
