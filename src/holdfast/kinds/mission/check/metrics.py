"""Metrics that improve step by step: values, comparisons, and the next task. Pure (S26)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.facts.mission import Metric, MissionReplanned, Task
from holdfast.kinds.mission.contract.contents import in_words
from holdfast.kinds.mission.fold.state import MissionState
from holdfast.kinds.mission.plan import free_id

TASKS_MAX = 30
"""Tasks for one metric before a user is asked, regardless of their success."""

SHOWN = 12
"""Most values of a curve that are shown: the first and the latest."""


def metric_of(mission: MissionState, name: str) -> Metric | None:
    """Return the metric of a criterion, or None."""
    criterion = mission.contract.criteria().get(name)
    return criterion.check.metric if criterion is not None and criterion.check is not None else None


def still_open(mission: MissionState, name: str) -> bool:
    """Return True if a criterion has a metric that has not reached its target."""
    return metric_of(mission, name) is not None and name not in mission.passed


def gain(metric: Metric, value: float | None) -> float:
    """Return a number that is higher for a better value; a missing value ranks worst."""
    if value is None:
        return -math.inf
    if metric.direction == "equal":
        return -abs(value - metric.target)
    return value if metric.direction == "at_least" else -value


def median(metric: Metric, values: Sequence[float | None]) -> int:
    """Return the index of the median among the values of several runs; of an even number, the worse one."""
    ordered = sorted(range(len(values)), key=lambda index: gain(metric, values[index]))
    return ordered[(len(values) - 1) // 2]


def values(mission: MissionState, name: str) -> tuple[float, ...]:
    """Return the values on the main branch so far, oldest first."""
    return tuple(value for _, value in mission.curves.get(name, ()))


def best(mission: MissionState, name: str) -> float | None:
    """Return the best value on the main branch so far, or None."""
    metric = metric_of(mission, name)
    return None if metric is None else max(values(mission, name), key=lambda each: gain(metric, each), default=None)


def improves(mission: MissionState, tree: str, name: str) -> bool:
    """Return True if an open metric is better on a tree than on the main branch by more than its tolerance."""
    metric, value = metric_of(mission, name), mission.measured.get(tree, {}).get(name)
    if metric is None or value is None or not still_open(mission, name):
        return False
    return gain(metric, value) > gain(metric, best(mission, name)) + metric.tolerance


def counts(mission: MissionState, name: str, value: float | None) -> bool:
    """Return True if a tree with this value may become the main branch although the target is not reached."""
    metric = metric_of(mission, name)
    if metric is None or value is None or not still_open(mission, name):
        return False
    return gain(metric, value) >= gain(metric, best(mission, name)) - metric.tolerance


def keeps(mission: MissionState, tree: str, name: str) -> bool:
    """Return True if an open metric on a tree is at most its tolerance worse than the best value so far."""
    return counts(mission, name, mission.measured.get(tree, {}).get(name))


def words(mission: MissionState, tree: str, name: str) -> str:
    """Describe an open metric on a tree and the next value that counts, in parentheses; empty for other criteria."""
    metric = metric_of(mission, name)
    if metric is None or not still_open(mission, name):
        return ""
    value, top = mission.measured.get(tree, {}).get(name), best(mission, name)
    found = "no number was printed" if value is None else f"the median was {value:g}"
    by = f" by more than {metric.tolerance:g}" if metric.tolerance else ""
    return f" ({found}; {'a number' if top is None else f'better than {top:g}{by}'} counts as a step)"


def curve(mission: MissionState, name: str) -> str:
    """Format the values so far and the target, such as `0.4 → 0.52 → 0.61, target at least 0.9`; empty without one."""
    metric = metric_of(mission, name)
    if metric is None:
        return ""
    known = [f"{each:g}" for each in values(mission, name)]
    if len(known) > SHOWN:
        known = [known[0], "…", *known[1 - SHOWN :]]
    side = {"at_least": "at least ", "at_most": "at most ", "equal": ""}[metric.direction]
    return f"{' → '.join(known) or 'no value yet'}, target {side}{metric.target:g}"


# --- the next step -----------------------------------------------------------------------------------


def without_improvement(mission: MissionState, name: str) -> int:
    """Count the unsuccessful tasks for a metric since its best value."""
    known, top = mission.curves.get(name, []), best(mission, name)
    since = next((seq for seq, value in known if value == top), 0)
    lost = [task for task in mission.tasks.values() if task.status in ("failed", "blocked", "infeasible")]
    return sum(name in task.task.criteria and task.since_seq > since for task in lost)


def halted(mission: MissionState, name: str) -> str:
    """Return the reason to ask a user before another task for a metric; empty if none."""
    lost = without_improvement(mission, name)
    if lost >= mission.policy.plateau:
        return f"{name} did not improve in {lost} tasks: {curve(mission, name)}"
    made = sum(name in task.task.criteria for task in mission.tasks.values())
    return f"{name} had {made} tasks: {curve(mission, name)}" if made >= TASKS_MAX else ""


def next_task(mission: MissionState, name: str) -> MissionReplanned:
    """Return another task for a metric that has not reached its target. It does not count as a plan."""
    item = next(each for each in mission.contract.items if any(one.id == name for one in each.criteria))
    criterion = mission.contract.criteria()[name]
    assert criterion.check is not None
    made = sum(name in task.task.criteria for task in mission.tasks.values())
    task = Task(
        id=free_id(f"{item.id}-step-{made + 1}", mission.tasks),
        title=f"Improve: {criterion.text}".partition("\n")[0][:120],
        criteria=(name,),
        scope=item.paths,
        description=(
            f"{item.description}\n\nThe number that counts: {in_words(criterion.check)}. Values so far: "
            f"{curve(mission, name)}. One step is enough; earlier attempts are listed below."
        ),
    )
    return MissionReplanned(round=mission.round, tasks=(task,), why=f"{name} can be better: {curve(mission, name)}")
