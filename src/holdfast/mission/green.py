"""What a merged tree has to pass, and when it does (S26). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.session.state_mission import MissionState


def needed(mission: MissionState, tasks: Iterable[str]) -> tuple[str, ...]:
    """The criteria that have to pass on the tree that these tasks are merged into, in the order of the contract.

    All that passed on the main line, guards that hold there, and what the tasks are for. A rubric line is not among
    them: no command checks it.
    """
    wanted = set(mission.passed)
    for name in tasks:
        wanted.update(mission.tasks[name].task.criteria)
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None and (name in wanted or (criterion.guard and _holds(mission, name)))
    )


def _holds(mission: MissionState, guard: str) -> bool:
    """Whether a guard is not known to fail on the main line: one that never held there accuses nobody."""
    verdict = mission.verdict(mission.main_tree, guard)
    return verdict is None or verdict.outcome == "pass"


def unknown(mission: MissionState) -> tuple[str, ...]:
    """Guards that nobody checked on the main line yet. Before the first merge they tell what held at the base."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.guard
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
    verdicts = mission.verdicts.get(tree, {})
    return all(name in verdicts and verdicts[name].outcome == "pass" for name in needed(mission, tasks))
