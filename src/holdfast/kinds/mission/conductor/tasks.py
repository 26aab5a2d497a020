"""Progress of tasks, from the plan to a branch in the merge queue. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, assert_never

from holdfast.facts.base import Fact
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import (
    FindingNoted,
    RefusalKind,
    TaskEnded,
    TaskHandedIn,
    TaskQueued,
    TaskRefused,
)
from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.conductor.actions import Found, Inspect, OpenRole, TellRole, Verify
from holdfast.kinds.mission.conductor.merges import BROKEN_MAX, stands, verdict_note
from holdfast.kinds.mission.fold.state import BEFORE, MissionState, TaskState
from holdfast.kinds.mission.plan import ready, stuck
from holdfast.kinds.mission.ratchet.inspection import DEVIATION_HINT, asking
from holdfast.kinds.mission.role.submissions import read_verdict
from holdfast.session.actions import Record
from holdfast.session.state import State

CONFLICTS_MAX = 5
"""Restarts of a task after a merge conflict before it fails."""

SHORT_TREE = 12

EMPTY = "nothing was changed, and nothing has shown that it holds; if it does, hand in as blocked and say where"


def step(state: State, mission: MissionState, running: frozenset[str]) -> Found:
    """Return the next action for the tasks under way; None while all of them wait."""
    for task in mission.live():
        found = _step(state, mission, task, running)
        if found is not None:
            return found
    return None


def _step(state: State, mission: MissionState, task: TaskState, running: frozenset[str]) -> Found:
    match task.status:
        case "working":
            return _working(state, mission, task)
        case "handed_in":
            return _handed_in(state, mission, task, running)
        case "inspected":
            return _inspected(mission, task, running)
        case "judging":
            return _judging(mission, task)
        case "planned" | "queued" | "merged" | "blocked" | "infeasible" | "failed" | "dropped":
            return None
        case _:
            assert_never(task.status)


def begin(state: State, mission: MissionState, running: frozenset[str]) -> Found:
    """Open the next worker if a task is ready and there is room, but not while children wait for the budget.

    Before a task's first worker, its checks run once on the tree that it starts from: the worker sees what fails, and a
    check that already fails there does not count against it.
    """
    busy = sum(task.status in ("working", "judging") for task in mission.live())
    if busy >= mission.policy.workers or waiting_for_budget(mission):
        return None
    for task in ready(mission):
        names = executable(mission, task.task.criteria) if not task.attempt else ()
        missing = tuple(name for name in names if mission.verdict(mission.main_tree, name) is None)
        effect = f"{BEFORE}{task.task.id}:{mission.main_tree[:SHORT_TREE]}"
        if effect in running:
            return None
        if missing and not mission.broken.get(effect, 0):
            return Verify(effect, mission.main, mission.main_tree, missing)
        return _open(mission, task)
    lost = tuple(
        TaskEnded(task_id=task.task.id, status="dropped", why=f"{name}, which it depends on, will not be merged")
        for task, name in stuck(mission)
    )
    return Record(lost) if lost else None


def _has_room(mission: MissionState, task: TaskState) -> bool:
    """Return True if a task in progress can go on without exceeding the number of workers.

    A task counts with a worker or a judge that is running or waits for the budget. One that waits for a message or for
    a fresh worker does not count.
    """
    busy = 0
    for each in mission.live():
        child_id = each.judge_id if each.status == "judging" else ""
        if each.status == "working" and each.iterations < mission.policy.max_iterations:
            child_id = each.child_id
        if each is not task and child_id:
            busy += child_id not in mission.reports or waits_for_budget(mission, child_id)
    return busy < mission.policy.workers


def _open(mission: MissionState, task: TaskState) -> Found:
    """Open a fresh worker, or end the task after too many."""
    tried = task.attempt - task.conflicts
    if tried >= mission.policy.max_attempts or task.conflicts > CONFLICTS_MAX:
        refusals = [line for line in mission.failures if line.startswith(f"task {task.task.id} ")]
        last = refusals[-1] if refusals else "they stopped without handing in"
        return _end(
            task, "failed", f"{task.attempt} workers did not finish it; the last time: {last}", task.best_commit
        )
    return OpenRole(
        kind="worker",
        attempt=task.attempt + 1,
        commit=task.start or mission.main,
        task_id=task.task.id,
        base=mission.main,
        ref=worker_ref(mission, task),
        criteria=task.task.criteria,
    )


def worker_ref(mission: MissionState, task: TaskState) -> str:
    """Name of a task's branch, next to the main branch of its mission."""
    return f"{mission.ref.removesuffix('/main')}/{task.task.id}"


def _end(task: TaskState, status: Literal["failed", "blocked"], why: str, best: str) -> Record:
    return Record((TaskEnded(task_id=task.task.id, status=status, why=why, best=best),))


# --- reports of workers --------------------------------------------------------------------------


def _working(state: State, mission: MissionState, task: TaskState) -> Found:
    if task.iterations >= mission.policy.max_iterations:
        return _open(mission, task) if _has_room(mission, task) else None
    report = mission.reports.get(task.child_id)
    if report is None or waits_for_budget(mission, task.child_id):
        return None
    submitted = report.submitted
    if report.status != "done" or not submitted:
        why = report.detail or "it ended without handing in"
        return _stopped(mission, task, report, why)
    facts = tuple(_handed(task, report))
    status = submitted.get("status")
    if status in ("blocked", "infeasible"):
        why = str(submitted.get("notes", "")) or f"its worker reported that it is {status}"
        facts += (TaskEnded(task_id=task.task.id, status=status, why=why, best=task.best_commit),)
    elif not report.commit:
        return _stopped(mission, task, report, "it handed in, and none of its work could be committed")
    return Record(facts)


def _stopped(mission: MissionState, task: TaskState, report: ChildFinished, why: str) -> Found:
    """Handle a worker that stopped without a submission: verify its tree, send it a message, or open another."""
    if report.commit and report.tree not in ("", task.tree):  # the tree may be right
        left = TaskHandedIn(
            task_id=task.task.id,
            child_id=report.child_id,
            status="stopped",
            commit=report.commit,
            tree=report.tree,
            notes=why,
        )
        return Record((left,))
    refused = TaskRefused(
        task_id=task.task.id, child_id=report.child_id, kind="silent", issues=(why,), tree=report.tree
    )
    if task.iterations + 1 >= mission.policy.max_iterations or report.status != "done":
        found = _open(mission, task)
        if isinstance(found, Record):
            return Record((refused, *found.facts))
        return found
    return TellRole(report.child_id, f"You stopped without handing in your work: {why}. Call `hand_in`.", (refused,))


def _handed(task: TaskState, report: ChildFinished) -> Iterator[Fact]:
    submitted = report.submitted
    yield TaskHandedIn(
        task_id=task.task.id,
        child_id=report.child_id,
        status=submitted.get("status", "done"),
        commit=report.commit,
        tree=report.tree,
        notes=str(submitted.get("notes", "")),
        concerns=_words(submitted.get("concerns")),
        deviations=_words(submitted.get("deviations")),
        next=str(submitted.get("next", "")),
    )
    for text in _words(submitted.get("findings")):
        yield FindingNoted(task_id=task.task.id, child_id=report.child_id, text=text)


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()


# --- findings of the harness ---------------------------------------------------------------------


def _handed_in(state: State, mission: MissionState, task: TaskState, running: frozenset[str]) -> Found:
    if task.inspected_tree == task.tree and task.violations:
        kind: RefusalKind = "scope" if task.only_scope else "ratchet"
        head = "What you handed in is refused:"
        if kind == "ratchet":
            head = f"What you handed in is refused ({DEVIATION_HINT}):"
        return _refuse(mission, task, kind, task.violations, head)
    effect = inspection(task)
    return None if effect in running or asking(state, effect) else Inspect(effect, task.task.id)


def inspection(task: TaskState) -> str:
    """Name of the effect that inspects a task's tree."""
    return f"inspect:{task.task.id}:{task.tree[:SHORT_TREE]}"


def executable(mission: MissionState, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of these criteria that a command checks."""
    known = mission.contract.criteria()
    return tuple(name for name in names if name in known and known[name].check is not None)


def by_rubric(mission: MissionState, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of these criteria that only a judge can answer."""
    known = mission.contract.criteria()
    return tuple(name for name in names if name in known and known[name].check is None)


def _inspected(mission: MissionState, task: TaskState, running: frozenset[str]) -> Found:
    wanted = executable(mission, task.task.criteria)
    missing = tuple(name for name in wanted if mission.verdict(task.tree, name) is None)
    effect = f"task:{task.task.id}:{task.tree[:SHORT_TREE]}"
    if missing:
        if effect in running:
            return None
        if mission.broken.get(effect, 0) >= BROKEN_MAX:
            why = "its checks could not be run: " + (mission.failures[-1] if mission.failures else "see the log")
            return _end(task, "failed", why, task.best_commit)
        return Verify(effect, task.commit, task.tree, missing)
    red = tuple(name for name in wanted if not stands(mission, task.tree, name, (task.task.id,)))
    if red:
        known = mission.contract.criteria()
        issues = tuple(
            f"{name} is not met{metrics.words(mission, task.tree, name)}{verdict_note(mission, task.tree, name)}: "
            f"{known[name].text}"
            for name in red
        )
        seqs = tuple(verdict.seq for name in red if (verdict := mission.verdict(task.tree, name)) is not None)
        return _refuse(mission, task, "checks", issues, "These checks do not pass on what you handed in:", seqs)
    unknown = tuple(name for name in by_rubric(mission, task.task.criteria) if name not in mission.passed)
    if mission.policy.judge != "off" and unknown and not task.changed and not task.judged:
        issues = tuple(f"{name}: {EMPTY}" for name in unknown)
        return _refuse(mission, task, "empty", issues, "You handed in no change:")
    if mission.policy.judge == "per_task" and not task.judged:
        return _judge(mission, task)
    return Record((TaskQueued(task_id=task.task.id, commit=task.commit, tree=task.tree),))


# --- the judge -----------------------------------------------------------------------------------


def _judge(mission: MissionState, task: TaskState) -> OpenRole:
    return OpenRole(
        kind="judge",
        attempt=task.judge_tries + 1,
        commit=task.commit,
        task_id=task.task.id,
        base=task.base,
        tree=task.tree,
        criteria=task.task.criteria,
    )


def _judging(mission: MissionState, task: TaskState) -> Found:
    report = mission.reports.get(task.judge_id) if task.judge_id else None
    if report is not None and not waits_for_budget(mission, task.judge_id):
        return Record((read_verdict(mission, report, task),))
    if task.judge_id:
        return None
    last = task.verdict
    if last is None or last.refused:
        if task.judge_tries < mission.policy.judge_tries:
            return _judge(mission, task)
        said = last.refused if last is not None else "nothing"
        why = f"{task.judge_tries} judges gave no valid verdict; the last: {said}"
        return _end(task, "blocked", why, task.commit)
    match last.decision:
        case "pass":
            return Record((TaskQueued(task_id=task.task.id, commit=task.commit, tree=task.tree),))
        case "escalate":
            return _end(task, "blocked", f"its judge escalated to a person: {last.reason}", task.commit)
        case "fail" | "restart":
            issues = tuple(f"{each.criterion}: {each.issue}" for each in last.criteria if not each.passes)
            issues = issues or (last.reason or "the judge did not say what is wrong",)
            restart = last.decision == "restart"
            return _refuse(mission, task, "judge", issues, "The judge does not accept it:", restart=restart)
        case _:
            assert_never(last.decision)


# --- sending back --------------------------------------------------------------------------------


def _refuse(
    mission: MissionState,
    task: TaskState,
    kind: RefusalKind,
    issues: tuple[str, ...],
    head: str,
    evidence: tuple[int, ...] = (),
    *,
    restart: bool = False,
) -> Found:
    """Send work back to its worker with the reasons; after too many refusals, open a fresh worker."""
    refused = TaskRefused(
        task_id=task.task.id,
        child_id=task.child_id,
        kind=kind,
        issues=issues,
        tree=task.tree,
        evidence=evidence,
        restart=restart or task.stopped,
    )
    if task.stopped or restart or task.iterations + 1 >= mission.policy.max_iterations:
        return Record((refused,))
    if not _has_room(mission, task):
        return None  # all workers are busy: it is sent back after one of them submits
    lines = "\n".join(f"- {issue}" for issue in issues)
    text = f"{head}\n{lines}\nFix this and hand in again. If it cannot be done, hand in as blocked."
    return TellRole(task.child_id, text, (refused,), evidence)


def waits_for_budget(mission: MissionState, child_id: str) -> bool:
    """Return True if a child is parked because the mission's budget is used up, not its own."""
    report = mission.reports.get(child_id)
    if report is None or report.status != "parked" or report.reason != "budget":
        return False
    own = mission.policy.task_budget_pico
    return own is None or 2 * (report.cost_pico or 0) < own


def waiting_for_budget(mission: MissionState) -> list[str]:
    """Return the children that wait for the mission's budget."""
    return [child_id for child_id in mission.reports if waits_for_budget(mission, child_id)]
