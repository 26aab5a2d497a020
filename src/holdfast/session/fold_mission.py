"""The fold of a mission: contract, plan, tasks, verdicts, main line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.child import ChildFinished
from holdfast.facts.codec import Event
from holdfast.facts.contract import ContractAmended, ContractSealed
from holdfast.facts.mission import (
    CriterionChecked,
    FlakeNoted,
    MissionEscalated,
    MissionFinished,
    MissionOpened,
    MissionPlanned,
    MissionReplanned,
    PlannerOpened,
    PlanRefused,
    ReplanAsked,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.repo import BatchRefused, MergeStarted, RepoConflicted, RepoMerged, RepoMoved
from holdfast.facts.session import SessionCreated
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
from holdfast.session.state import State
from holdfast.session.state_mission import (
    OVER,
    ChildRole,
    MissionState,
    OpenMerge,
    OpenVerification,
    TaskState,
    TaskStatus,
    Verdict,
)

FAILURES_KEPT = 60

TREES_KEPT = 16
"""Verdicts of so many refused merges are kept: what is left of a red batch is often the same tree again."""


def began(state: State, fact: SessionCreated) -> None:
    """A session that is a mission has a mission's state."""
    if fact.mission is not None:
        state.mission = MissionState(fact.mission.contract, fact.mission.policy)


def child_finished(state: State, fact: ChildFinished, event: Event) -> None:
    """A child of the mission came to rest: the conductor answers that."""
    mission = state.mission
    if mission is not None and fact.child_id in mission.roles:
        mission.reports[fact.child_id] = fact


def told(state: State, child_id: str) -> None:
    """A child of the mission has something to do again."""
    if state.mission is not None:
        state.mission.reports.pop(child_id, None)


def raised(state: State, event: Event) -> None:
    """There is more money now."""
    if state.mission is not None:
        state.mission.raised_seq = event.seq


def _of(state: State) -> MissionState:
    assert state.mission is not None
    return state.mission


def _task(state: State, task_id: str) -> TaskState | None:
    return _of(state).tasks.get(task_id)


def _turn(task: TaskState, status: TaskStatus, event: Event) -> None:
    task.status, task.since_seq = status, event.seq


def _failed(mission: MissionState, words: str) -> None:
    mission.failures.append(words[:500])
    del mission.failures[:-FAILURES_KEPT]


def _sealed(state: State, fact: ContractSealed, event: Event) -> None:
    _of(state).digest = fact.digest


def _amended(state: State, fact: ContractAmended, event: Event) -> None:
    mission = _of(state)
    before = mission.contract.criteria()
    after = fact.contract.criteria()
    changed = {name for name in before if after.get(name) != before[name]}
    mission.contract, mission.digest = fact.contract, fact.digest
    for name in changed:
        for positions in (mission.passed, mission.rubric, mission.final_passed):
            positions.pop(name, None)
        for verdicts in mission.verdicts.values():
            verdicts.pop(name, None)
    state.stirred()


def _opened(state: State, fact: MissionOpened, event: Event) -> None:
    mission = _of(state)
    mission.opened_seq, mission.ref = event.seq, fact.ref
    mission.main, mission.main_tree, mission.followed = fact.base, fact.tree, fact.base


def _planned(state: State, fact: MissionPlanned, event: Event) -> None:
    mission = _of(state)
    mission.planned = True
    _settle_planner(mission, fact.child_id)
    for task in fact.tasks:
        mission.tasks[task.id] = TaskState(task, since_seq=event.seq)


def _replanned(state: State, fact: MissionReplanned, event: Event) -> None:
    mission = _of(state)
    mission.round, mission.replan_seq, mission.replan_why = fact.round, 0, ""
    _settle_planner(mission, fact.child_id)
    for name in fact.dropped:
        task = mission.tasks.get(name)
        if task is not None and task.status not in OVER:
            _turn(task, "dropped", event)
    for each in fact.tasks:
        mission.tasks[each.id] = TaskState(each, since_seq=event.seq)
    for name in fact.dropped:
        _take_apart(mission, name, tuple(each.id for each in fact.tasks if each.parent == name))


def _take_apart(mission: MissionState, name: str, parts: tuple[str, ...]) -> None:
    """Whatever waited for a task waits for all its parts."""
    for known in mission.tasks.values():
        if parts and name in known.task.depends and known.task.parent != name:
            depends = (*(each for each in known.task.depends if each != name), *parts)
            known.task = msgspec.structs.replace(known.task, depends=depends)


def _settle_planner(mission: MissionState, child_id: str) -> None:
    mission.reports.pop(child_id, None)
    mission.planner_id, mission.plan_refusals = "", 0


def _planner(state: State, fact: PlannerOpened, event: Event) -> None:
    mission = _of(state)
    mission.planner_id = fact.child_id
    mission.roles[fact.child_id] = ChildRole("planner", fact.task_id, round=fact.round)


def _plan_refused(state: State, fact: PlanRefused, event: Event) -> None:
    mission = _of(state)
    mission.reports.pop(fact.child_id, None)
    mission.plan_refusals += 1


def _replan_asked(state: State, fact: ReplanAsked, event: Event) -> None:
    state.stirred()
    mission = _of(state)
    mission.replan_seq, mission.replan_why = event.seq, fact.reason


def _escalated(state: State, fact: MissionEscalated, event: Event) -> None:
    _of(state).escalated_seq = event.seq


def _finished(state: State, fact: MissionFinished, event: Event) -> None:
    _of(state).finished = fact.status


def _verifying(state: State, fact: VerificationStarted, event: Event) -> None:
    _of(state).verifications[fact.effect] = OpenVerification(
        event.seq, fact.verification_id, fact.effect, fact.tree, fact.criteria, fact.hands, fact.key
    )


def _checked(state: State, fact: CriterionChecked, event: Event) -> None:
    mission = _of(state)
    verdicts = mission.verdicts.setdefault(fact.tree, {})
    for name in fact.criteria:
        verdicts[name] = Verdict(event.seq, fact.outcome, fact.key)
        if fact.outcome == "pass" and fact.tree == mission.main_tree:
            mission.passed.setdefault(name, event.seq)


def _verified(state: State, fact: VerificationEnded, event: Event) -> None:
    mission = _of(state)
    mission.verifications.pop(fact.effect, None)
    if fact.error:
        mission.broken[fact.effect] = mission.broken.get(fact.effect, 0) + 1
        _failed(mission, f"a verification could not be done: {fact.error}")
    else:
        mission.broken.pop(fact.effect, None)


def _flake(state: State, fact: FlakeNoted, event: Event) -> None:
    flakes = _of(state).flakes
    flakes[fact.criterion] = flakes.get(fact.criterion, 0) + 1


def _started(state: State, fact: TaskStarted, event: Event) -> None:
    mission = _of(state)
    task = mission.tasks[fact.task_id]
    mission.reports.pop(task.child_id, None)
    task.child_id, task.attempt, task.base, task.ref = fact.child_id, fact.attempt, fact.base, fact.ref
    task.pristine = mission.followed
    task.iterations, task.commit, task.tree, task.judge_id, task.judge_tries, task.judged = 0, "", "", "", 0, False
    task.verdict = None
    task.start, task.violations, task.inspected_tree = "", (), ""
    mission.roles[fact.child_id] = ChildRole("worker", fact.task_id)
    _turn(task, "working", event)


def _handed_in(state: State, fact: TaskHandedIn, event: Event) -> None:
    mission = _of(state)
    mission.reports.pop(fact.child_id, None)
    task = mission.tasks[fact.task_id]
    task.commit, task.tree = fact.commit, fact.tree
    task.judge_id, task.judge_tries, task.judged, task.verdict = "", 0, False, None
    _turn(task, "handed_in", event)
    if fact.status != "done":
        _failed(mission, f"task {fact.task_id} is {fact.status} by its worker's word: {fact.notes}")


def _inspected(state: State, fact: TaskInspected, event: Event) -> None:
    _of(state).allowed.update(fact.allowed)
    task = _task(state, fact.task_id)
    if task is not None and task.tree == fact.tree and task.status == "handed_in":
        task.unasked, task.inspected_tree = len(fact.unasked), fact.tree
        task.only_scope = all(each.rule in ("scope", "dependency") for each in fact.violations)
        task.violations = tuple(f"{each.path}: {each.detail or each.rule}" for each in fact.violations)
        if not fact.violations:
            _turn(task, "inspected", event)


def _refused(state: State, fact: TaskRefused, event: Event) -> None:
    mission = _of(state)
    mission.reports.pop(fact.child_id, None)
    task = mission.tasks[fact.task_id]
    task.refusals[fact.kind] = task.refusals.get(fact.kind, 0) + 1
    task.iterations += 1
    _best(mission, task)
    mission.groups = [left for group in mission.groups if (left := tuple(n for n in group if n != fact.task_id))]
    issue = fact.issues[0] if fact.issues else ""
    _failed(mission, f"task {fact.task_id} was sent back ({fact.kind}): {issue}")
    _turn(task, "planned" if fact.restart or fact.kind == "regression" else "working", event)


def _best(mission: MissionState, task: TaskState) -> None:
    """Keep the iteration that met most of its criteria: the last one is not always the best."""
    verdicts = mission.verdicts.get(task.tree, {})
    score = sum(verdicts[name].outcome == "pass" for name in task.task.criteria if name in verdicts)
    if task.commit and score > task.best_score:
        task.best_commit, task.best_score = task.commit, score


def _judging(state: State, fact: JudgeOpened, event: Event) -> None:
    mission = _of(state)
    mission.roles[fact.child_id] = ChildRole("judge", fact.task_id, fact.tree, fact.criteria)
    task = _task(state, fact.task_id)
    if task is None:
        mission.final_judge, mission.final_tree = fact.child_id, fact.tree
        mission.final_tries = fact.attempt
        return
    task.judge_id, task.judge_tries = fact.child_id, fact.attempt
    _turn(task, "judging", event)


def _judged(state: State, fact: TaskJudged, event: Event) -> None:
    mission = _of(state)
    mission.reports.pop(fact.child_id, None)
    task = _task(state, fact.task_id)
    if task is None:
        mission.final_judge, mission.final_verdict = "", fact
    else:
        task.judge_id, task.verdict = "", fact
    if fact.refused:
        return
    passed = mission.final_passed if task is None else mission.rubric
    for each in fact.criteria:
        if each.passes:
            passed[each.criterion] = event.seq
        else:
            passed.pop(each.criterion, None)
    if task is not None and fact.decision == "pass":
        task.judged = True


def _queued(state: State, fact: TaskQueued, event: Event) -> None:
    _turn(_of(state).tasks[fact.task_id], "queued", event)


def _ended(state: State, fact: TaskEnded, event: Event) -> None:
    mission = _of(state)
    task = mission.tasks[fact.task_id]
    task.why = fact.why
    mission.reports.pop(task.child_id, None)
    if fact.status not in ("merged", "dropped"):
        _failed(mission, f"task {fact.task_id} is {fact.status}: {fact.why}")
    _turn(task, fact.status, event)


def _merging(state: State, fact: MergeStarted, event: Event) -> None:
    mission = _of(state)
    mission.batches = max(mission.batches, fact.batch)
    if fact.tasks and mission.groups and set(mission.groups[0]) >= set(fact.tasks):
        mission.groups.pop(0)
    mission.merge = OpenMerge(event.seq, fact.batch, fact.ref, fact.onto, fact.tasks, fact.commit, fact.tree, fact.base)


def _merged(state: State, fact: RepoMerged, event: Event) -> None:
    mission = _of(state)
    mission.merge, mission.astray = None, ""
    mission.main, mission.main_tree = fact.commit, fact.tree
    mission.followed = fact.base or mission.followed
    mission.moved = "" if mission.moved == fact.base else mission.moved
    for name in fact.passed:
        mission.passed.setdefault(name, event.seq)
    known = mission.contract.criteria()
    for name in fact.tasks:
        task = mission.tasks[name]
        for criterion in task.task.criteria:
            if criterion in mission.rubric and criterion in known and known[criterion].check is None:
                mission.passed.setdefault(criterion, event.seq)
        _turn(task, "merged", event)
    _forget_trees(mission)


def _forget_trees(mission: MissionState) -> None:
    """Verdicts of trees that nothing leads to any more are in the log alone."""
    wanted = {mission.main_tree, *(task.tree for task in mission.tasks.values() if task.status not in OVER)}
    wanted |= {each.tree for each in mission.verifications.values()} | set(mission.red_trees)
    mission.verdicts = {tree: known for tree, known in mission.verdicts.items() if tree in wanted}


def _conflicted(state: State, fact: RepoConflicted, event: Event) -> None:
    mission = _of(state)
    if not fact.task_id:
        mission.refused_base = fact.commit
        _failed(mission, f"new commits of the followed branch did not merge: {', '.join(fact.paths[:5])}")
        return
    mission.groups = [left for group in mission.groups if (left := tuple(n for n in group if n != fact.task_id))]
    task = mission.tasks[fact.task_id]
    task.conflicts += 1
    task.start = ""
    _failed(mission, f"task {fact.task_id} did not merge: {', '.join(fact.paths[:5])}")
    _turn(task, "planned", event)


def _moved(state: State, fact: RepoMoved, event: Event) -> None:
    mission = _of(state)
    if fact.followed:
        mission.moved, mission.moved_seq = fact.found, event.seq
    else:
        mission.astray = "" if fact.found == mission.main else fact.found


def _batch_refused(state: State, fact: BatchRefused, event: Event) -> None:
    mission = _of(state)
    if mission.merge is not None and len(fact.tasks) == 1:
        mission.tasks[fact.tasks[0]].start = mission.merge.commit
    if mission.merge is not None and not fact.tasks:
        mission.refused_base = mission.merge.base
    mission.merge = None
    mission.groups = list(fact.groups)
    mission.red_trees = [*mission.red_trees, fact.tree][-TREES_KEPT:]


Apply = Callable[[State, Any, Event], None]


def _of_a_mission(apply: Apply) -> Apply:
    """What is of a mission says nothing in another session's log."""

    def applied(state: State, fact: Any, event: Event) -> None:
        if state.mission is not None:
            apply(state, fact, event)

    return applied


_APPLY: dict[type[Fact], Apply] = {
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
    VerificationStarted: _verifying,
    CriterionChecked: _checked,
    VerificationEnded: _verified,
    FlakeNoted: _flake,
    TaskStarted: _started,
    TaskHandedIn: _handed_in,
    TaskInspected: _inspected,
    TaskRefused: _refused,
    JudgeOpened: _judging,
    TaskJudged: _judged,
    TaskQueued: _queued,
    TaskEnded: _ended,
    MergeStarted: _merging,
    RepoMerged: _merged,
    RepoConflicted: _conflicted,
    RepoMoved: _moved,
    BatchRefused: _batch_refused,
}

APPLY: dict[type[Fact], Apply] = {kind: _of_a_mission(apply) for kind, apply in _APPLY.items()}
