"""Runs of simulated missions, with a reproducible report of a failing one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.facts.mission import MissionFinished
from holdfast.facts.shift import ShiftEnded
from holdfast.sim.invariants import Violation
from holdfast.sim.loop import Stuck, run
from holdfast.sim.missions.cast import COST_PICO
from holdfast.sim.missions.rules import judge_mission
from holdfast.sim.missions.scene import Scene
from holdfast.sim.missions.storm import MissionStorm
from holdfast.sim.missions.world import MissionHistory, MissionWorld
from holdfast.sim.run import TRACE_LINES

USED = 0.9
"""Least used part of a budget when a mission parks for it."""


@dataclass(frozen=True)
class MissionResult:
    """Result of one seed.

    `rest` is the end of the mission, `met` its met criteria. `tempted` counts judges of work that misses only rubric
    lines, `lenient` those of them that accepted it. `false_accepts` are rubric lines that count as met at the end but
    were not met when accepted; `broken_later` were met then and no longer are. `injected` is the expected number of
    lenient judges by the seed's rate, `used` the used part of the budget when the mission parked for it.
    """

    seed: int
    rest: str
    met: tuple[str, ...]
    events: int
    sessions: int
    kills: int
    zombies: int
    requests: int
    human: int
    rubric_met: int
    false_accepts: int
    broken_later: int
    tempted: int
    lenient: int
    injected: float
    used: float | None
    faults: tuple[str, ...]
    violations: tuple[Violation, ...]
    trace: tuple[str, ...] = ()

    @property
    def replay(self) -> str:
        """Command that runs this seed again."""
        return f"holdfast sim --missions --first {self.seed} --seeds 1"

    def report(self) -> str:
        """Describe a failing seed."""
        wrong = [f"  {each.invariant}: {each.message}" for each in self.violations[:8]]
        head = f"seed {self.seed} violates:"
        return "\n".join([head, *wrong, "the last steps (seconds, who, what):", *self.trace, f"again: {self.replay}"])


def run_mission_seed(seed: int, only: str = "") -> MissionResult:
    """Run the mission of a seed and judge it, with `only` by that invariant alone.

    A seed with a budget gets half of what the mission needs in calm weather; one without interference must meet the
    same criteria as in calm weather.
    """
    scene = Scene(seed)
    if not (scene.half or scene.plain):
        return _lived(seed, only)
    calm = _lived(seed, only, calm=True)
    if calm.violations:
        return calm
    cap = calm.requests // 2 * COST_PICO if scene.half else None
    result = _lived(seed, only, cap_pico=cap)
    if scene.plain and only in ("", "kills_change_nothing") and set(result.met) != set(calm.met):
        words = f"met are {sorted(result.met)}, and {sorted(calm.met)} when nothing breaks"
        return replace(result, violations=(*result.violations, Violation("kills_change_nothing", words)))
    return result


def _lived(seed: int, only: str, *, calm: bool = False, cap_pico: int | None = None) -> MissionResult:
    world = MissionWorld(seed, calm=calm, cap_pico=cap_pico)
    storm = MissionStorm(world)
    try:
        run(world.loop, storm.run())
        found = judge_mission(world, storm.approvals, only)
    except Stuck as stuck:
        found = [Violation("comes_to_rest", str(stuck))]
    except Exception as error:  # users and the final look meet the same errors as brains
        found = [Violation("nothing_unexplained", f"the world fell apart: {error!r}")]
    used = storm.spent_first / cap_pico if cap_pico and storm.spent_first is not None else None
    if used is not None and used < USED and only in ("", "budget_is_usable"):
        found.append(Violation("budget_is_usable", f"it rested for money with {used:.0%} of its budget used"))
    return _result(world, found, used)


def _result(world: MissionWorld, found: list[Violation], used: float | None) -> MissionResult:
    record = world.record
    facts = [event.fact for event in world.events.get(world.mission_id, [])]
    ends = [fact for fact in facts if isinstance(fact, ShiftEnded)]
    finished = next((fact for fact in facts if isinstance(fact, MissionFinished)), None)
    rest = f"{ends[-1].status} {ends[-1].reason or ''}".strip() if ends else "nothing"
    met = finished.met if finished is not None else ()
    rubric = [name for name in met if name in world.scene.rubric]
    false = [name for name in rubric if finished and not world.scene.holds(world.tree(finished.head), name)]
    accepted = [name for name in false if MissionHistory(world, 0).accepted_wrongly(name)]
    trace = [f"  {at:10.3f}  {who:<7} {what}" for at, who, what in record.trace[-TRACE_LINES:]] if found else []
    return MissionResult(
        seed=world.seed,
        rest=rest,
        met=met,
        events=sum(session.head for session in world.sessions.values()),
        sessions=len(world.sessions),
        kills=record.kills,
        zombies=record.zombies,
        requests=world.requests,
        human=len(world.human),
        rubric_met=len(rubric),
        false_accepts=len(accepted),
        broken_later=len(false) - len(accepted),
        tempted=len(world.tempted),
        lenient=sum(world.tempted.values()),
        injected=len(world.tempted) * world.scene.rates["lenient"],
        used=used,
        faults=tuple(sorted(world.faulty)),
        violations=tuple(found),
        trace=tuple(trace),
    )


@dataclass
class MissionTotals:
    """Totals of many missions."""

    seeds: int = 0
    events: int = 0
    sessions: int = 0
    kills: int = 0
    zombies: int = 0
    requests: int = 0
    human: int = 0
    rubric_met: int = 0
    false_accepts: int = 0
    broken_later: int = 0
    tempted: int = 0
    lenient: int = 0
    injected: float = 0.0
    violations: int = 0
    rests: Counter[str] = field(default_factory=Counter)
    used: list[float] = field(default_factory=list)
    failing: MissionResult | None = None

    def add(self, result: MissionResult) -> None:
        """Add one result. The first failing one is kept."""
        self.seeds += 1
        self.rests[result.rest] += 1
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(result, name))
        self.violations += len(result.violations)
        if result.used is not None:
            self.used.append(result.used)
        if result.violations and self.failing is None:
            self.failing = result

    def join(self, other: MissionTotals) -> None:
        """Add the totals of other seeds."""
        for name in ("seeds", "violations", *_SUMMED):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.rests += other.rests
        self.used += other.used
        self.failing = self.failing or other.failing

    def summary(self) -> dict[str, Any]:
        """Return the totals by name."""
        failing = self.failing
        return {
            "seeds": self.seeds,
            "rests": dict(sorted(self.rests.items())),
            **{name: round(getattr(self, name), 1) for name in _SUMMED},
            "least_used": min(self.used, default=None),
            "violations": self.violations,
            "failing_seed": None if failing is None else failing.seed,
            "replay": None if failing is None else failing.replay,
            "found": [] if failing is None else [[each.invariant, each.message] for each in failing.violations],
        }

    def line(self) -> str:
        """Return the totals in one line."""
        rests = ", ".join(f"{count} {name}" for name, count in sorted(self.rests.items()))
        return (
            f"{self.seeds} missions ({rests}), {self.kills} kills, {self.sessions} sessions, {self.requests} requests, "
            f"{self.events} events, {self.human} commits of people; {self.rubric_met} rubric lines met, "
            f"{self.false_accepts} of them accepted wrongly by judges ({self.lenient} of the {self.tempted} that could "
            f"be were lenient, {self.injected:.0f} by their rates), {self.broken_later} broken later; "
            f"{self.violations} violations"
        )


_SUMMED = (
    "events",
    "sessions",
    "kills",
    "zombies",
    "requests",
    "human",
    "rubric_met",
    "false_accepts",
    "broken_later",
    "tempted",
    "lenient",
    "injected",
)


def run_missions(seeds: Iterable[int]) -> MissionTotals:
    """Run seeds in order, up to the first that fails."""
    totals = MissionTotals()
    for seed in seeds:
        totals.add(run_mission_seed(seed))
        if totals.failing is not None:
            break
    return totals
