"""Speed and strength of the simulator: clean seeds per second, and planted bugs caught with their median seeds.

python bench/simulator.py [--seeds N] [--within N]

Exit 1 if a clean seed violates an invariant, if 2,000 of them would take a minute, or if fewer
than 95 % of the planted bugs are caught.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.sim.run import run_seeds
from tests.sim.planted import PLANTS
from tests.sim.planted.kit import hunt

CLEAN_S = 60.0
"""Time limit for 2,000 clean seeds, in seconds."""

CAUGHT = 0.95


def clean(seeds: int) -> bool:
    """The first row."""
    began = time.perf_counter()
    totals = run_seeds(range(seeds))
    took_s = time.perf_counter() - began
    if totals.failing is not None:
        print(totals.failing.report())
        return False
    for_2000_s = took_s / seeds * 2000
    print(
        f"clean: {seeds} seeds in {took_s:.1f} s ({seeds / took_s:.0f} a second), {totals.crashes} crashes, "
        f"{totals.zombies} zombies, {totals.posts} posts, {totals.effects} effects, {totals.events} events, "
        f"0 violations; target 2000 in {CLEAN_S:.0f} s: {'ok' if for_2000_s <= CLEAN_S else 'MISSED'}"
    )
    return for_2000_s <= CLEAN_S


def planted(within: int) -> bool:
    """The second row."""
    took: list[int] = []
    missed: list[str] = []
    for plant in PLANTS:
        outcome = hunt(plant, range(within))
        if outcome is None:
            missed.append(plant.name)
        else:
            took.append(outcome.seed + 1)
    share = len(took) / len(PLANTS)
    print(
        f"planted: {len(took)} of {len(PLANTS)} bugs caught within {within} seeds ({share:.0%}), median "
        f"{statistics.median(took):.0f} seeds, slowest {max(took)}; target {CAUGHT:.0%}: "
        f"{'ok' if share >= CAUGHT else 'MISSED'}"
    )
    if missed:
        print(f"not caught: {', '.join(missed)}")
    return share >= CAUGHT


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure the simulator")
    parser.add_argument("--seeds", type=int, default=2_000, help="clean seeds")
    parser.add_argument("--within", type=int, default=2_000, help="seeds that each planted bug is given")
    args = parser.parse_args()
    good = [clean(args.seeds), planted(args.within)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
