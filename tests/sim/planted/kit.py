"""What a planted bug is, and how it is hunted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from holdfast.sim.run import Outcome, run_seed

Planting = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Plant:
    """One bug: its name, the rule that it breaks if it has one, the invariant that has to notice, how it gets in.

    It is hunted from the seed `first` on, shortly before a world that shows it.
    """

    name: str
    rule: str
    invariant: str
    planting: Planting
    first: int = 0


class Bed:
    """Bugs of one part of the code, in the order they were written down."""

    def __init__(self) -> None:
        self.plants: list[Plant] = []

    def plant(self, rule: str, invariant: str, first: int = 0) -> Callable[[Planting], Planting]:
        """Take a function that breaks the code as a planted bug of that rule."""

        def take(planting: Planting) -> Planting:
            self.plants.append(Plant(planting.__name__, rule, invariant, planting, first))
            return planting

        return take


def hunt(plant: Plant, seeds: Iterable[int], run: Callable[[int, str], Outcome] = run_seed) -> Outcome | None:
    """The first of these seeds whose world its invariant finds wrong, None when none does."""
    with pytest.MonkeyPatch.context() as patch:
        plant.planting(patch)
        for seed in seeds:
            outcome = run(plant.first + seed, plant.invariant)
            if any(each.invariant == plant.invariant for each in outcome.violations):
                return outcome
    return None
