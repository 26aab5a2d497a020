"""Progress of a task, from the plan to a branch in the merge queue. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.facts.base import Fact
from holdfast.facts.child import ChildFinished
from holdfast.facts.task import (
    FindingNoted,
    RefusalKind,
    TaskEnded,
    TaskHandedIn,
    TaskQueued,
    TaskRefused,
)
from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.conductor.actions import Inspect, MissionAction, OpenRole, RaiseChildren, TellRole, Verify
from holdfast.kinds.mission.conductor.merges import BROKEN_MAX, stands, verdict_note
from holdfast.kinds.mission.fold.state import BEFORE, MissionState, TaskState
from holdfast.kinds.mission.plan import ready, stuck
from holdfast.kinds.mission.ratchet.inspection import DEVIATION_HINT, asking
from holdfast.kinds.mission.role.submissions import read_verdict
from holdfast.session.actions import Action, Record
from holdfast.session.state import State

CONFLICTS_MAX = 5
"""So often a task is begun anew because the main line had moved."""

SHORT_TREE = 12

EMPTY = "nothing was changed, and nothing has shown that it holds; if it does, hand in as blocked and say where"

Found = Action | MissionAction | None


def step(state: State, mission: MissionState, running: frozenset[str]) -> Found:
    """What the tasks that are under way need next; None when all of them wait."""
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
        case _:
            return None


def begin(state: State, mission: MissionState, running: frozenset[str]) -> Found:
    """Open the next worker, when there is a task for one and room; not while money is short.

    Before a task's first worker its checks run once on the tree that it starts from: a worker is shown what fails, and
    a check that fails there for a reason of its own accuses nobody.
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
    lost = stuck(mission)
    if lost:
        return Record(tuple(_in_vain(task, name) for task, name in lost))
    return None


def _has_room(mission: MissionState, task: TaskState) -> bool:
    """Whether a task that was begun can go on beside the others that have somebody at work."""
    others = sum(_at_work(mission, each) for each in mission.live() if each is not task)
    return others < mission.policy.workers


def _at_work(mission: MissionState, task: TaskState) -> bool:
    """Whether a task has a worker or a judge at work, or one that waits for money.

    One that waits to be told, or for a fresh worker, has none.
    """
    if task.status == "working":
        return task.iterations < mission.policy.max_iterations and _goes_on(mission, task.child_id)
    return task.status == "judging" and bool(task.judge_id) and _goes_on(mission, task.judge_id)


def _goes_on(mission: MissionState, child_id: str) -> bool:
    return child_id not in mission.reports or waits_for_budget(mission, child_id)


def _in_vain(task: TaskState, name: str) -> TaskEnded:
    return TaskEnded(task_id=task.task.id, status="dropped", why=f"it waits in vain for {name}")


def _open(mission: MissionState, task: TaskState) -> Found:
    """A fresh worker; or the end of the task when too many were tried."""
    tried = task.attempt - task.conflicts
    if tried >= mission.policy.max_attempts or task.conflicts > CONFLICTS_MAX:
        why = f"{task.attempt} workers did not get it done; the last time: {_last_refusal(mission, task)}"
        return Record((TaskEnded(task_id=task.task.id, status="failed", why=why, best=task.best_commit),))
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
    """The branch of a task: beside the main line of its mission."""
    return f"{mission.ref.removesuffix('/main')}/{task.task.id}"


def _last_refusal(mission: MissionState, task: TaskState) -> str:
    words = [line for line in mission.failures if line.startswith(f"task {task.task.id} ")]
    return words[-1] if words else "they stopped without handing in"


# --- what workers report -------------------------------------------------------------------------


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
        why = str(submitted.get("notes", "")) or f"its worker says that it is {status}"
        facts += (TaskEnded(task_id=task.task.id, status=status, why=why, best=task.best_commit),)
    elif not report.commit:
        return _stopped(mission, task, report, "it handed in, and none of its work could be committed")
    return Record(facts)


def _stopped(mission: MissionState, task: TaskState, report: ChildFinished, why: str) -> Found:
    """A worker that stopped otherwise than by handing in: its tree is verified, else a fresh worker begins."""
    if report.commit and report.tree not in ("", task.tree):
        # What it left may be right: the harness looks before it gives the tree up.
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


# --- what the harness finds ----------------------------------------------------------------------


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
    """The effect that inspects what a task's worker handed in."""
    return f"inspect:{task.task.id}:{task.tree[:SHORT_TREE]}"


def executable(mission: MissionState, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those criteria that a command checks."""
    known = mission.contract.criteria()
    return tuple(name for name in names if name in known and known[name].check is not None)


def by_rubric(mission: MissionState, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those criteria that only a judge can answer."""
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
            return Record((TaskEnded(task_id=task.task.id, status="failed", why=why, best=task.best_commit),))
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
        why = f"{task.judge_tries} judges gave no verdict that counts; the last: {said}"
        return Record((TaskEnded(task_id=task.task.id, status="blocked", why=why, best=task.commit),))
    match last.decision:
        case "pass":
            return Record((TaskQueued(task_id=task.task.id, commit=task.commit, tree=task.tree),))
        case "escalate":
            why = f"its judge wants a person: {last.reason}"
            return Record((TaskEnded(task_id=task.task.id, status="blocked", why=why, best=task.commit),))
        case _:
            issues = tuple(f"{each.criterion}: {each.issue}" for each in last.criteria if not each.passes)
            issues = issues or (last.reason or "the judge did not say what is wrong",)
            restart = last.decision == "restart"
            return _refuse(mission, task, "judge", issues, "The judge does not accept it:", restart=restart)


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
    """Say what is wrong, and to whom; a worker that was told often enough is followed by a fresh one."""
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
        return None  # others took its place meanwhile: it is told once one of them hands in
    lines = "\n".join(f"- {issue}" for issue in issues)
    text = f"{head}\n{lines}\nSet this right, and hand in again. If it cannot be done, hand in as blocked."
    return TellRole(task.child_id, text, (refused,), evidence)


def waits_for_budget(mission: MissionState, child_id: str) -> bool:
    """Whether a child rests because the mission's money is used up, not its own."""
    report = mission.reports.get(child_id)
    if report is None or report.status != "parked" or report.reason != "budget":
        return False
    own = mission.policy.task_budget_pico
    return own is None or 2 * (report.cost_pico or 0) < own


def waiting_for_budget(mission: MissionState) -> list[str]:
    """The children that wait for the mission's money."""
    return [child_id for child_id in mission.reports if waits_for_budget(mission, child_id)]


def budget_detail(mission: MissionState) -> str:
    """Why the mission rests."""
    waiting = waiting_for_budget(mission)
    return f"the budget is used up: {len(waiting)} of its sessions wait for money"


def resume_children(state: State, mission: MissionState) -> RaiseChildren | None:
    """Money was raised after they stopped: they go on."""
    waiting = [name for name in waiting_for_budget(mission) if state.children[name].finished_seq < mission.raised_seq]
    return RaiseChildren(tuple(waiting)) if waiting else None
