"""The order in which branches are merged, and how the bad ones are found with few checks. Pure.

Branches are merged several at a time and checked once. When that is red, a part of them is tried first. Is that part
green, it is merged, and the rest must be at fault: together they are the tree that was red before, whose verdict is
recorded, so that trying them costs nothing until they are divided again. Is it red, nothing is known of the rest: they
go back to the others and are merged with them. One alone that is red is at fault.
"""

from __future__ import annotations

import math

from holdfast.facts.repo import BatchRefused
from holdfast.kinds.mission.fold.state import MissionState, OpenMerge

PRIOR_BAD, PRIOR_SEEN = 0.8, 20.0
"""What is thought of branches before any was seen: so many bad ones among so many."""


def next_batch(mission: MissionState) -> tuple[str, ...]:
    """The queued tasks to merge now, in the order of their merging; none when none is queued.

    Parts of a red batch come first, then tasks in the order of the plan.
    """
    queued = [name for name, task in mission.tasks.items() if task.status == "queued"]
    for group in mission.groups:
        left = tuple(name for name in group if name in queued)
        if left:
            return left
    return tuple(queued if mission.policy.gate == "green_branch" else queued[: batch_size(mission)])


def batch_size(mission: MissionState) -> int:
    """How many branches to merge at once, so that about half of the batches are green.

    It follows what was seen of branches in this mission, up to the policy's `batch`.
    """
    if mission.policy.gate == "each":
        return 1
    good = sum(task.status == "merged" for task in mission.tasks.values())
    bad = sum(task.refusals.get("regression", 0) for task in mission.tasks.values())
    rate = min((PRIOR_BAD + bad) / (PRIOR_SEEN + good + bad), 0.5)
    wanted = max(1, round(math.log(0.5) / math.log1p(-rate)))
    return max(1, min(wanted, mission.policy.batch))


def after_red(mission: MissionState, merge: OpenMerge, failed: tuple[str, ...]) -> BatchRefused:
    """What follows from a red merge: who is at fault, or which parts to try."""
    tasks = merge.tasks
    if not tasks:
        return _refused(merge, failed, groups=tuple(mission.groups))
    if len(tasks) == 1:
        return _refused(merge, failed, culprits=tasks)
    owners = tuple(name for name in tasks if not set(failed).isdisjoint(mission.tasks[name].task.criteria))
    if owners and len(owners) < len(tasks):
        rest = tuple(name for name in tasks if name not in owners)
        return _refused(merge, failed, groups=(rest, owners))
    half = (len(tasks) + 1) // 2
    return _refused(merge, failed, groups=(tasks[:half], tasks[half:]))


def _refused(
    merge: OpenMerge,
    failed: tuple[str, ...],
    *,
    culprits: tuple[str, ...] = (),
    groups: tuple[tuple[str, ...], ...] = (),
) -> BatchRefused:
    return BatchRefused(
        batch=merge.batch,
        onto=merge.onto,
        tree=merge.tree,
        tasks=merge.tasks,
        failed=failed,
        culprits=culprits,
        groups=groups,
    )
