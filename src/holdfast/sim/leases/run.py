"""Runs of simulated leases, with a reproducible report of a failing seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from holdfast.sim.leases.rules import judge
from holdfast.sim.leases.world import World
from holdfast.sim.loop import Stuck, run


@dataclass(frozen=True)
class LeaseResult:
    """Result of one seed."""

    seed: int
    counts: Counter[str]
    violations: tuple[str, ...]

    @property
    def replay(self) -> str:
        """Command that runs this seed again."""
        return f"holdfast sim --leases --first {self.seed} --seeds 1"

    def report(self) -> str:
        """Describe a failing seed."""
        return "\n".join([f"seed {self.seed} violates:", *(f"  {each}" for each in self.violations[:8]), self.replay])


def run_leases(seed: int) -> LeaseResult:
    """Live through the world of a seed, and judge it."""
    world = World(seed)
    violations: list[str] = []
    try:
        run(world.loop, world.live())
    except Stuck as error:
        violations.append(f"rest: {error}")
    violations += judge(world)
    database = world.database
    counts = world.counts + Counter(
        effects=len(world.effects), commits=len(database.commits), forgotten=len(database.lost), seeds=1
    )
    return LeaseResult(seed, counts, tuple(violations))
