"""Fold of a mission's contract, plans, children, and tasks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import (
    ContractAmended,
    ContractSealed,
    LessonApplied,
    MissionEscalated,
    MissionFinished,
    MissionOpened,
    MissionPlanned,
    MissionReplanned,
    PlannerOpened,
    PlanRefused,
    ReplanAsked,
)
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import BudgetSet, ChildFinished, ChildMessaged
from holdfast.facts.task import (
    JudgeOpened,
    RepoCommitted,
    TaskEnded,
    TaskHandedIn,
    TaskInspected,
    TaskJudged,
    TaskQueued,
    TaskRefused,
    TaskStarted,
)
from holdfast.kinds.mission.fold.state import (
    OVER,
    ChildRole,
    MissionState,
    TaskState,
    note_failure,
    of_mission,
    turn,
)
from holdfast.session.state import Apply, State

NOTES = "/notes"
"""Last part of the name of the branch with a mission's documents."""


def _child_finished(state: State, fact: ChildFinished, event: Event) -> None:
    mission = of_mission(state)
    if fact.child_id in mission.roles:
        mission.reports[fact.child_id] = fact


def _child_told(state: State, fact: ChildMessaged, event: Event) -> None:
    of_mission(state).reports.pop(fact.child_id, None)


def _raised(state: State, fact: BudgetSet, event: Event) -> None:
    of_mission(state).raised_seq = event.seq


def _updated(state: State, fact: SessionUpdated, event: Event) -> None:
    mission = of_mission(state)
    if fact.budget_pico is not None:
        mission.raised_seq = event.seq
    if fact.egress is not None:  # a check that failed without the network is run again
        for verdicts in mission.verdicts.values():
            for name in [name for name, verdict in verdicts.items() if verdict.outcome != "pass"]:
                del verdicts[name]


def _noted(state: State, fact: RepoCommitted, event: Event) -> None:
    if fact.ref.endswith(NOTES):
        of_mission(state).noted_seq = fact.through_seq


def _sealed(state: State, fact: ContractSealed, event: Event) -> None:
    of_mission(state).digest = fact.digest


def _amended(state: State, fact: ContractAmended, event: Event) -> None:
    mission = of_mission(state)
    before = mission.contract.criteria()
    after = fact.contract.criteria()
    changed = {name for name in before if after.get(name) != before[name]}
    mission.contract, mission.digest = fact.contract, fact.digest
    for name in changed:
        for known in (
            mission.passed,
            mission.rubric,
            mission.stale,
            mission.final_passed,
            mission.greened,
            mission.curves,
            mission.abilities,
            mission.proofs,
        ):
            known.pop(name, None)
        for verdicts in mission.verdicts.values():
            verdicts.pop(name, None)
        for values in mission.measured.values():
            values.pop(name, None)
    state.stirred()


def _opened(state: State, fact: MissionOpened, event: Event) -> None:
    mission = of_mission(state)
    mission.opened_seq, mission.ref = event.seq, fact.ref
    mission.main, mission.main_tree, mission.followed = fact.base, fact.tree, fact.base


def _planned(state: State, fact: MissionPlanned, event: Event) -> None:
    mission = of_mission(state)
    mission.planned = True
    _settle_planner(mission, fact.child_id)
    for task in fact.tasks:
        mission.tasks[task.id] = TaskState(task, since_seq=event.seq)


def _replanned(state: State, fact: MissionReplanned, event: Event) -> None:
    mission = of_mission(state)
    mission.round, mission.replan_seq, mission.replan_why = fact.round, 0, ""
    _settle_planner(mission, fact.child_id)
    for name in fact.dropped:
        task = mission.tasks.get(name)
        if task is not None and task.status not in OVER:
            turn(task, "dropped", event)
    for each in fact.tasks:
        mission.tasks[each.id] = TaskState(each, since_seq=event.seq)
    for name in fact.dropped:
        _take_apart(mission, name, tuple(each.id for each in fact.tasks if each.parent == name))


def _take_apart(mission: MissionState, name: str, parts: tuple[str, ...]) -> None:
    """Make tasks that depend on a divided task depend on all its parts."""
    for known in mission.tasks.values():
        if parts and name in known.task.depends and known.task.parent != name:
            depends = (*(each for each in known.task.depends if each != name), *parts)
            known.task = msgspec.structs.replace(known.task, depends=depends)


def _settle_planner(mission: MissionState, child_id: str) -> None:
    mission.reports.pop(child_id, None)
    mission.planner_id, mission.plan_refusals = "", 0


def _planner(state: State, fact: PlannerOpened, event: Event) -> None:
    mission = of_mission(state)
    mission.planner_id = fact.child_id
    mission.roles[fact.child_id] = ChildRole("planner", fact.task_id, round=fact.round)


def _plan_refused(state: State, fact: PlanRefused, event: Event) -> None:
    mission = of_mission(state)
    mission.reports.pop(fact.child_id, None)
    mission.plan_refusals += 1


def _replan_asked(state: State, fact: ReplanAsked, event: Event) -> None:
    state.stirred()
    mission = of_mission(state)
    mission.replan_seq, mission.replan_why = event.seq, fact.reason
    if mission.stale:  # the judges gave no valid verdict, and a user approved to go on: restart the count
        mission.final_tries, mission.final_verdict = 0, None


def _escalated(state: State, fact: MissionEscalated, event: Event) -> None:
    of_mission(state).escalated_seq = event.seq


def _finished(state: State, fact: MissionFinished, event: Event) -> None:
    of_mission(state).finished = fact.status


def _lesson(state: State, fact: LessonApplied, event: Event) -> None:
    lessons = of_mission(state).lessons
    if fact.line not in lessons:
        lessons.append(fact.line)


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
    # The same tree in which no violation was found is not inspected again.
    known = fact.tree == task.inspected_tree and not task.violations
    turn(task, "inspected" if known else "handed_in", event)
    if fact.status in ("blocked", "infeasible"):
        note_failure(mission, f"task {fact.task_id} is {fact.status}, its worker reported: {fact.notes}")


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
    """Remember the iteration that met the most criteria: the last one is not always the best."""
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
            mission.final_passed = {}  # verdicts on another tree do not count for this one
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
    """Apply a verdict on criteria that a merge had made unknown: each is met again or unmet."""
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
    ContractSealed: _sealed,
    ContractAmended: _amended,
    MissionOpened: _opened,
    MissionPlanned: _planned,
    MissionReplanned: _replanned,
    PlannerOpened: _planner,
    PlanRefused: _plan_refused,
    ReplanAsked: _replan_asked,
    MissionEscalated: _escalated,
    MissionFinished: _finished,
    LessonApplied: _lesson,
    ChildFinished: _child_finished,
    ChildMessaged: _child_told,
    BudgetSet: _raised,
    SessionUpdated: _updated,
    RepoCommitted: _noted,
    TaskStarted: _started,
    TaskHandedIn: _handed_in,
    TaskInspected: _inspected,
    TaskRefused: _refused,
    JudgeOpened: _judging,
    TaskJudged: _judged,
    TaskQueued: _queued,
    TaskEnded: _ended,
}
