"""What a merged tree has to pass, and when it does (S26). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.fold.state import MissionState


def needed(mission: MissionState, tasks: Iterable[str]) -> tuple[str, ...]:
    """The criteria that have to pass on the tree that these tasks are merged into, in the order of the contract.

    All that passed on the main line, guards that hold there, metrics with a value there, and what the tasks are for. A
    rubric line is not among them: no command checks it.
    """
    wanted = set(mission.passed)
    for name in tasks:
        wanted.update(mission.tasks[name].task.criteria)
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None
        and (name in wanted or (criterion.guard and _holds(mission, name)) or mission.curves.get(name))
    )


def stands(mission: MissionState, tree: str, name: str, tasks: Iterable[str] = ()) -> bool:
    """Whether a recorded verdict lets the tree of these tasks become the main line (S26).

    A metric that has not reached its target has to be better there when one of the tasks is for it, and not worse when
    none is.
    """
    verdict = mission.verdict(tree, name)
    if verdict is not None and verdict.outcome == "pass":
        return True
    mine = any(name in mission.tasks[task].task.criteria for task in tasks)
    return metrics.improves(mission, tree, name) if mine else metrics.keeps(mission, tree, name)


def _holds(mission: MissionState, guard: str) -> bool:
    """Whether a guard is not known to fail on the main line: one that never held there accuses nobody."""
    verdict = mission.verdict(mission.main_tree, guard)
    return verdict is None or verdict.outcome == "pass"


def unknown(mission: MissionState) -> tuple[str, ...]:
    """Guards that nobody checked on the main line yet, and before the first merge metrics: where they begin."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if (criterion.guard or (metrics.still_open(mission, name) and not mission.batches))
        and criterion.check is not None
        and name not in mission.passed
        and mission.verdict(mission.main_tree, name) is None
    )


def unmet_unknown(mission: MissionState) -> tuple[str, ...]:
    """Criteria that are not met by any record, and that nobody tried on the main line as it is now."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None
        and name not in mission.passed
        and mission.verdict(mission.main_tree, name) is None
    )


def is_green(mission: MissionState, tree: str, tasks: Iterable[str]) -> bool:
    """Whether recorded verdicts say that the tree passes all that it has to (S26)."""
    names = tuple(tasks)
    return all(stands(mission, tree, name, names) for name in needed(mission, names))
