"""Simulated leases among homes: lost messages, silent workers, restarts, promotions; and planted bugs to be found."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.sim.leases.run import run_leases
from tests.sim.planted.in_leases import BED
from tests.sim.planted.kit import Plant

SEEDS, NEAR = 2_000, 30
"""Worlds in which a planted bug has to be found, and those from the seed shortly before the first one on."""


def test_no_session_has_two_workers() -> None:
    counts = Counter[str]()
    for seed in range(60):
        result = run_leases(seed)
        assert not result.violations, result.report()
        counts += result.counts
    assert min(counts[kind] for kind in ("kill", "stop", "hang", "cut", "restart", "promote", "drain", "Fenced")) > 5
    assert counts["forgotten"] > 20


def test_a_seed_lives_the_same_way_again() -> None:
    assert run_leases(7) == run_leases(7)


def find(plant: Plant, seeds: range) -> int | None:
    """Return the first seed in which the rule of a planted bug finds it, None if none does."""
    with pytest.MonkeyPatch.context() as patch:
        plant.planting(patch)
        for seed in seeds:
            if any(each.startswith(f"{plant.invariant}:") for each in run_leases(seed).violations):
                return seed
    return None


@pytest.mark.parametrize("plant", BED.plants, ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    assert find(plant, range(plant.first, plant.first + NEAR)) is not None


@pytest.mark.faults
@pytest.mark.parametrize("plant", BED.plants, ids=lambda plant: plant.name)
def test_a_planted_bug_is_found_from_the_first_seed_on(plant: Plant) -> None:
    assert find(plant, range(SEEDS)) is not None


@pytest.mark.faults
def test_twenty_thousand_worlds() -> None:
    for seed in range(1_000, 21_000):
        result = run_leases(seed)
        assert not result.violations, result.report()
