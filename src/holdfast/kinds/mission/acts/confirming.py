"""Runs of what never passed before: a check that passes only sometimes is not met."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from holdfast.kinds.mission.acts.running import Run
from holdfast.kinds.mission.check import checking, proofs
from holdfast.kinds.mission.check.checking import Group

Again = Callable[[Group], Awaitable[Run | None]]


async def confirm(again: Again, group: Group, passes: Mapping[str, int], wanted: int) -> dict[str, str]:
    """Run these checks until each has passed `wanted` times. Returned are those that did not, with the word for it."""
    counts = dict(passes)
    while left := [name for name in group.names if counts[name] < wanted]:
        part = group.part(left)
        run = await again(part)
        if run is None:
            return {}
        if not run.passed:
            return await _told_apart(again, part, counts, wanted, run)
        counts |= {name: counts[name] + 1 for name in left}
    return {}


async def _told_apart(again: Again, group: Group, counts: Mapping[str, int], wanted: int, run: Run) -> dict[str, str]:
    """The ones at fault of checks that passed together and then failed: each is run alone."""
    if not group.divisible:
        return {name: sometimes(counts[name] + 1, 1) for name in group.names}
    red: dict[str, str] = {}
    for name in group.names:
        red |= await confirm(again, group.part((name,)), {name: 0}, wanted)
    return red or {name: sometimes(counts[name] + 1, 1) for name in checking.named(group, run.result.output)}


def sometimes(runs: int, failures: int) -> str:
    """The word for a check that passed and failed on one tree."""
    return f"{proofs.SOMETIMES}: it failed {failures} of {runs} times on the same tree"
