"""Runs of simulated duties, with a reproducible report of a failing seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from holdfast.facts.duty import FiringEnded, TriggerFired, TriggerMissed, TriggerSkipped
from holdfast.sim.duties.rules import judge
from holdfast.sim.duties.world import World
from holdfast.sim.loop import Stuck, run

SIZE, DAYS = 20, 30
"""Duties of a world, and the days that it lasts."""


@dataclass(frozen=True)
class DutyResult:
    """Result of one seed."""

    seed: int
    counts: Counter[str]
    violations: tuple[str, ...]

    @property
    def replay(self) -> str:
        """Command that runs this seed again."""
        return f"holdfast sim --duties --first {self.seed} --seeds 1"

    def report(self) -> str:
        """Describe a failing seed."""
        return "\n".join([f"seed {self.seed} violates:", *(f"  {each}" for each in self.violations[:8]), self.replay])


def run_duties(seed: int, size: int = SIZE, days: int = DAYS, *, calm: bool = False) -> DutyResult:
    """Live through the world of a seed, and judge each of its duties."""
    world = World(seed, size, days, calm=calm)
    violations: list[str] = []
    try:
        run(world.loop, world.live())
    except Stuck as error:
        violations.append(f"stuck: {error}")
    except Exception as error:  # any error of a brain is a finding
        violations.append(f"error: {type(error).__name__}: {error}")
    violations += [f"error: {each}" for each in dict.fromkeys(world.errors)]
    counts: Counter[str] = Counter(kills=world.kills, zombies=world.zombies, duties=len(world.duties))
    for duty_id, log in world.logs.items():
        violations += judge(world.duties[duty_id], duty_id, log, world.accepted[duty_id], world.clock.now_us())
        for event in log:
            match event.fact:
                case TriggerFired():
                    counts["firings"] += 1
                case FiringEnded(outcome=outcome):
                    counts[outcome] += 1
                case TriggerMissed(count=count):
                    counts["missed"] += count
                case TriggerSkipped():
                    counts["skipped"] += 1
                case _:
                    pass
        counts["events"] += len(log)
    return DutyResult(seed, counts, tuple(violations))
