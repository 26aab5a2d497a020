"""The fold of a mission's tasks: what workers hand in, what the harness and judges say of it."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.task import (
    JudgeOpened,
    TaskEnded,
    TaskHandedIn,
    TaskInspected,
    TaskJudged,
    TaskQueued,
    TaskRefused,
    TaskStarted,
)
from holdfast.kinds.mission.fold.shared import note_failure, turn
from holdfast.kinds.mission.fold.state import (
    ChildRole,
    MissionState,
    TaskState,
    of_mission,
)
from holdfast.session.state import Apply, State


def _started(state: State, fact: TaskStarted, event: Event) -> None:
    mission = of_mission(state)
    task = mission.tasks[fact.task_id]
    mission.reports.pop(task.child_id, None)
    task.child_id, task.attempt, task.base, task.ref = fact.child_id, fact.attempt, fact.base, fact.ref
    task.pristine = mission.followed
    task.iterations, task.commit, task.tree, task.judge_id, task.judge_tries, task.judged = 0, "", "", "", 0, False
    task.verdict = None
    task.start, task.violations, task.inspected_tree = "", (), ""
    mission.roles[fact.child_id] = ChildRole("worker", fact.task_id)
    turn(task, "working", event)


def _handed_in(state: State, fact: TaskHandedIn, event: Event) -> None:
    mission = of_mission(state)
    mission.reports.pop(fact.child_id, None)
    task = mission.tasks[fact.task_id]
    task.commit, task.tree = fact.commit, fact.tree
    task.judge_id, task.judge_tries, task.judged, task.verdict = "", 0, False, None
    task.stopped = fact.status == "stopped"
    # The same tree again, in which nothing forbidden was found: that stands.
    known = fact.tree == task.inspected_tree and not task.violations
    turn(task, "inspected" if known else "handed_in", event)
    if fact.status in ("blocked", "infeasible"):
        note_failure(mission, f"task {fact.task_id} is {fact.status} by its worker's word: {fact.notes}")


def _inspected(state: State, fact: TaskInspected, event: Event) -> None:
    of_mission(state).allowed.update(fact.allowed)
    task = of_mission(state).tasks.get(fact.task_id)
    if task is not None and task.tree == fact.tree and task.status == "handed_in":
        task.unasked, task.inspected_tree, task.changed = len(fact.unasked), fact.tree, len(fact.files)
        task.only_scope = all(each.rule in ("scope", "dependency") for each in fact.violations)
        task.violations = tuple(f"{each.path}: {each.detail or each.rule}" for each in fact.violations)
        if not fact.violations:
            turn(task, "inspected", event)


def _refused(state: State, fact: TaskRefused, event: Event) -> None:
    mission = of_mission(state)
    mission.reports.pop(fact.child_id, None)
    task = mission.tasks[fact.task_id]
    task.refusals[fact.kind] = task.refusals.get(fact.kind, 0) + 1
    task.iterations += 1
    _best(mission, task)
    mission.groups = [left for group in mission.groups if (left := tuple(n for n in group if n != fact.task_id))]
    issue = fact.issues[0] if fact.issues else ""
    note_failure(mission, f"task {fact.task_id} was sent back ({fact.kind}): {issue}")
    turn(task, "planned" if fact.restart or fact.kind == "regression" else "working", event)


def _best(mission: MissionState, task: TaskState) -> None:
    """Keep the iteration that met most of its criteria: the last one is not always the best."""
    verdicts = mission.verdicts.get(task.tree, {})
    score = sum(verdicts[name].outcome == "pass" for name in task.task.criteria if name in verdicts)
    if task.commit and score > task.best_score:
        task.best_commit, task.best_score = task.commit, score


def _judging(state: State, fact: JudgeOpened, event: Event) -> None:
    mission = of_mission(state)
    mission.roles[fact.child_id] = ChildRole("judge", fact.task_id, fact.tree, fact.criteria)
    task = of_mission(state).tasks.get(fact.task_id)
    if task is None:
        if fact.tree != mission.final_tree:
            mission.final_passed = {}  # what a judge accepted on another tree says nothing of this one
        mission.final_judge, mission.final_tree = fact.child_id, fact.tree
        mission.final_tries = fact.attempt
        return
    task.judge_id, task.judge_tries = fact.child_id, fact.attempt
    turn(task, "judging", event)


def _judged(state: State, fact: TaskJudged, event: Event) -> None:
    mission = of_mission(state)
    mission.reports.pop(fact.child_id, None)
    task = of_mission(state).tasks.get(fact.task_id)
    if task is None:
        mission.final_judge, mission.final_verdict = "", fact
    else:
        task.judge_id, task.verdict = "", fact
    if fact.refused:
        return
    if task is None and mission.stale:
        _judged_again(mission, fact, event)
        return
    passed = mission.final_passed if task is None else mission.rubric
    for each in fact.criteria:
        if each.passes:
            passed[each.criterion] = event.seq
        else:
            passed.pop(each.criterion, None)
    if task is not None and fact.decision == "pass":
        task.judged = True


def _judged_again(mission: MissionState, fact: TaskJudged, event: Event) -> None:
    """What was no longer known is met by this verdict, or it is not met."""
    for each in fact.criteria:
        if mission.stale.pop(each.criterion, None) is None:
            continue
        if each.passes:
            mission.rubric[each.criterion] = mission.passed[each.criterion] = event.seq
        else:
            note_failure(mission, f"{each.criterion} was met, and is not after a later merge: {each.issue}")


def _queued(state: State, fact: TaskQueued, event: Event) -> None:
    turn(of_mission(state).tasks[fact.task_id], "queued", event)


def _ended(state: State, fact: TaskEnded, event: Event) -> None:
    mission = of_mission(state)
    task = mission.tasks[fact.task_id]
    task.why = fact.why
    mission.reports.pop(task.child_id, None)
    if fact.status not in ("merged", "dropped"):
        note_failure(mission, f"task {fact.task_id} is {fact.status}: {fact.why}")
    turn(task, fact.status, event)


FOLD: Mapping[type[Fact], Apply] = {
    TaskStarted: _started,
    TaskHandedIn: _handed_in,
    TaskInspected: _inspected,
    TaskRefused: _refused,
    JudgeOpened: _judging,
    TaskJudged: _judged,
    TaskQueued: _queued,
    TaskEnded: _ended,
}
