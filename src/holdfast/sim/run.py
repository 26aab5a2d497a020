"""Runs of seeds, with a reproducible report of a failing one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from holdfast.sim.invariants import Violation, judge, judge_jobs, judge_workers
from holdfast.sim.loop import Stuck, run
from holdfast.sim.scenarios import Crowd, Yard
from holdfast.sim.storm import Storm
from holdfast.sim.workers import Workers
from holdfast.sim.world import World

TRACE_LINES = 60
"""Number of last steps in the report of a failing seed."""


@dataclass(frozen=True)
class Outcome:
    """Result of one seed. `trace` is empty unless an invariant fails.

    For a family under one cap, `calm` is the weather, `used` the used part of the cap, and `over_pico` its overspend.
    """

    seed: int
    events: int
    crashes: int
    zombies: int
    posts: int
    effects: int
    violations: tuple[Violation, ...]
    trace: tuple[str, ...] = ()
    family: bool = False
    calm: bool = False
    used: float = 0.0
    over_pico: int = 0
    jobs: bool = False
    workers: bool = False

    @property
    def replay(self) -> str:
        """Command that runs this seed again."""
        kind = "--family " if self.family else "--jobs " if self.jobs else "--workers " if self.workers else ""
        return f"holdfast sim {kind}--first {self.seed} --seeds 1"

    def report(self) -> str:
        """Describe a failing seed: violations, last steps, and the command that repeats it."""
        wrong = [f"  {each.invariant}: {each.message}" for each in self.violations[:8]]
        head = f"seed {self.seed} violates:"
        steps = "the last steps (seconds, who, what):"
        return "\n".join([head, *wrong, steps, *self.trace, f"again: {self.replay}"])


def run_seed(seed: int, only: str = "") -> Outcome:
    """Run the world of a seed and judge it, with `only` by that invariant alone."""
    world = World(seed)
    return _outcome(world, _lived(world, Storm(world), only))


def run_family(seed: int) -> Outcome:
    """Run a world of sixteen children under one cap, and judge it."""
    world = World(seed, family=False)
    crowd = Crowd(world)
    violations = _lived(world, crowd)
    outcome = _outcome(world, violations)
    if any(each.invariant == "comes_to_rest" for each in violations):
        return replace(outcome, family=True, calm=crowd.calm_weather)
    lacks = [Violation("cap_is_usable", each) for each in crowd.lacks()]
    return replace(
        _outcome(world, [*violations, *lacks]),
        family=True,
        calm=crowd.calm_weather,
        used=crowd.used(),
        over_pico=crowd.worst_over_pico(),
    )


def run_jobs(seed: int, only: str = "") -> Outcome:
    """Run a world of jobs that outlive their shifts, and judge it, with `only` by that invariant alone."""
    world = World(seed, family=False)
    return replace(_outcome(world, _lived(world, Yard(world), only, judge_jobs)), jobs=True)


def run_workers(seed: int, only: str = "") -> Outcome:
    """Run a world of workers that serve one home, and judge it, with `only` by that invariant alone."""
    world = World(seed, family=False)
    shop = Workers(world)

    def by(world: World, only: str) -> list[Violation]:
        return [*judge_workers(shop, only), *judge(world, only)]

    return replace(_outcome(world, _lived(world, shop, only, by)), workers=True)


def _lived(
    world: World, storm: Storm, only: str = "", by: Callable[[World, str], list[Violation]] = judge
) -> list[Violation]:
    try:
        run(world.loop, storm.run())
        return by(world, only)
    except Stuck as stuck:
        return [Violation("comes_to_rest", str(stuck))]
    except Exception as error:  # users and the final look meet the same errors as brains
        return [Violation("nothing_unexplained", f"the world fell apart: {error!r}")]


def _outcome(world: World, violations: list[Violation]) -> Outcome:
    record = world.record
    trace = [f"  {at:10.3f}  {who:<7} {what}" for at, who, what in record.trace[-TRACE_LINES:]] if violations else []
    return Outcome(
        seed=world.seed,
        events=sum(session.head for session in world.sessions.values()),
        crashes=record.kills,
        zombies=record.zombies,
        posts=len(record.said),
        effects=len(record.effects),
        violations=tuple(violations),
        trace=tuple(trace),
    )


@dataclass
class Totals:
    """Totals of many seeds. Used parts of caps and overspend are of families."""

    seeds: int = 0
    events: int = 0
    crashes: int = 0
    zombies: int = 0
    posts: int = 0
    effects: int = 0
    violations: int = 0
    failing: Outcome | None = None
    calm_used: list[float] = field(default_factory=list)
    storm_used: list[float] = field(default_factory=list)
    over_pico: int = 0

    def add(self, outcome: Outcome) -> None:
        """Add one seed. The first failing one is kept."""
        self.seeds += 1
        self.events += outcome.events
        self.crashes += outcome.crashes
        self.zombies += outcome.zombies
        self.posts += outcome.posts
        self.effects += outcome.effects
        self.violations += len(outcome.violations)
        if outcome.family:
            (self.calm_used if outcome.calm else self.storm_used).append(outcome.used)
            self.over_pico = max(self.over_pico, outcome.over_pico)
        if outcome.violations and self.failing is None:
            self.failing = outcome

    def join(self, other: Totals) -> None:
        """Add the totals of other seeds."""
        self.seeds += other.seeds
        self.events += other.events
        self.crashes += other.crashes
        self.zombies += other.zombies
        self.posts += other.posts
        self.effects += other.effects
        self.violations += other.violations
        self.calm_used += other.calm_used
        self.storm_used += other.storm_used
        self.over_pico = max(self.over_pico, other.over_pico)
        self.failing = self.failing or other.failing


def run_seeds(seeds: Iterable[int], one: Callable[[int], Outcome] = run_seed) -> Totals:
    """Run seeds in order, up to the first that fails."""
    totals = Totals()
    for seed in seeds:
        totals.add(one(seed))
        if totals.failing is not None:
            break
    return totals
