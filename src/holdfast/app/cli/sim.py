"""`holdfast sim`: the crash simulator over many seeds."""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable

import anyio.to_thread

from holdfast.app.call import Call
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.sim.duties.run import DutyResult, run_duties
from holdfast.sim.leases.run import LeaseResult, run_leases
from holdfast.sim.missions.run import MissionTotals, run_missions
from holdfast.sim.run import Totals, run_family, run_jobs, run_seed, run_seeds, run_workers

STRIDE = 50
"""Seeds between two lines of progress."""


def sim_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `sim`."""
    parser.add_argument("--seeds", metavar="N", type=int, default=200, help="Number of seeds (default: 200)")
    parser.add_argument("--first", metavar="S", type=int, default=0, help="First seed (default: 0)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--family", action="store_true", help="Simulate children that share a budget")
    kind.add_argument("--jobs", action="store_true", help="Simulate jobs that outlive their shifts")
    kind.add_argument("--workers", action="store_true", help="Simulate several workers on one home")
    kind.add_argument("--missions", action="store_true", help="Simulate missions with faulty workers and judges")
    kind.add_argument("--duties", action="store_true", help="Simulate 30 days of duties with clock steps and crashes")
    kind.add_argument("--leases", action="store_true", help="Simulate homes that share a database that fails")
    parser.add_argument("--json", action="store_true", help="Print the result as a JSON object")


async def sim_run(call: Call) -> int:
    """Run the seeds until one violates an invariant."""
    seeds, first = call.args.seeds, call.args.first
    if seeds < 1:
        raise UsageError(f"--seeds {seeds} has to be at least 1, for example: holdfast sim --seeds 500")
    if call.args.missions:
        return await _missions(call, range(first, first + seeds))
    if call.args.duties:
        return await _counted(call, range(first, first + seeds), run_duties, 1)
    if call.args.leases:
        return await _counted(call, range(first, first + seeds), run_leases, STRIDE)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    totals = Totals()
    one, stride = (run_family, STRIDE // 10) if call.args.family else (run_seed, STRIDE)
    if call.args.jobs:
        one = run_jobs
    if call.args.workers:
        one = run_workers
    for start in range(first, first + seeds, stride):
        part = range(start, min(start + stride, first + seeds))
        # The simulator has its own event loop, and a thread can run only one.
        totals.join(await anyio.to_thread.run_sync(run_seeds, part, one))
        call.note(_line(totals, clock.monotonic_s() - began_s))
        if totals.failing is not None:
            break
    _tell(call, totals, clock.monotonic_s() - began_s)
    return 0 if totals.failing is None else 1


async def _missions(call: Call, seeds: range) -> int:
    """Run whole missions until one violates a rule."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    totals = MissionTotals()
    for start in range(seeds.start, seeds.stop, STRIDE):
        part = range(start, min(start + STRIDE, seeds.stop))
        totals.join(await anyio.to_thread.run_sync(run_missions, part))
        call.note(f"{totals.line()}, {clock.monotonic_s() - began_s:.1f} s")
        if totals.failing is not None:
            break
    if call.json:
        call.emit({"type": "result", **totals.summary(), "wall_s": round(clock.monotonic_s() - began_s, 3)})
    if totals.failing is not None:
        call.say(totals.failing.report())
    elif not call.json:
        call.say(f"{totals.line()}, {clock.monotonic_s() - began_s:.1f} s")
    return 0 if totals.failing is None else 1


async def _counted(call: Call, seeds: range, one: Callable[[int], DutyResult | LeaseResult], stride: int) -> int:
    """Run worlds whose results are counts, until one violates a rule."""
    clock, counts = SystemClock(), Counter[str]()
    began_s = clock.monotonic_s()
    failing = None
    for seed in seeds:
        result = await anyio.to_thread.run_sync(one, seed)
        counts.update(result.counts)
        if result.violations:
            failing = result
            break
        if (seed - seeds.start + 1) % stride == 0:
            text = ", ".join(f"{count} {name}" for name, count in counts.items())
            call.note(f"seed {seed}: {text}, {clock.monotonic_s() - began_s:.1f} s")
    if call.json:
        found = [] if failing is None else list(failing.violations)
        call.emit({"type": "result", **counts, "wall_s": round(clock.monotonic_s() - began_s, 3), "found": found})
    if failing is not None:
        call.say(failing.report())
    elif not call.json:
        told = [name for name in ("duties", "firings", "commits", "effects") if counts[name]]
        what = ", ".join(f"{counts[name]} {name}" for name in told)
        call.say(f"{len(seeds)} seeds, {what}, 0 violations")
    return 0 if failing is None else 1


def _line(totals: Totals, seconds: float) -> str:
    return (
        f"{totals.seeds} seeds, {totals.crashes} crashes, {totals.zombies} zombies, {totals.posts} posts, "
        f"{totals.effects} effects, {totals.events} events, {totals.violations} violations, {seconds:.1f} s"
    )


def _tell(call: Call, totals: Totals, seconds: float) -> None:
    failing = totals.failing
    if call.json:
        call.emit(
            {
                "type": "result",
                "seeds": totals.seeds,
                "crashes": totals.crashes,
                "zombies": totals.zombies,
                "posts": totals.posts,
                "effects": totals.effects,
                "events": totals.events,
                "violations": totals.violations,
                "wall_s": round(seconds, 3),
                "failing_seed": None if failing is None else failing.seed,
                "replay": None if failing is None else failing.replay,
                "used": _used(totals),
                "worst_over_pico": totals.over_pico,
                "found": [] if failing is None else [[each.invariant, each.message] for each in failing.violations],
            }
        )
    if failing is not None:
        call.say(failing.report())
    elif not call.json:
        call.say(_line(totals, seconds))
    if call.args.family and not call.json:
        for weather, (least, median, most) in _used(totals).items():
            call.say(f"{weather:<6} used of the cap: {least:.1%} at least, {median:.1%} median, {most:.1%} at most")
        call.say(f"worst overspend: {totals.over_pico} pico-dollars")


def _used(totals: Totals) -> dict[str, tuple[float, float, float]]:
    """Weather → the minimum, median, and maximum fraction of a cap that was used."""
    both = {"calm": totals.calm_used, "storm": totals.storm_used}
    return {name: (min(used), statistics.median(used), max(used)) for name, used in both.items() if used}
