"""Inspection of a task's tree against its base: violations, unrequested changes, and approvals of changes.

A change of protected files that the worker declared as a deviation may be right: the user is asked once, and the answer
applies to exactly that content. All other violations send the work back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.errors import RepositoryUnfit
from holdfast.facts.base import Fact
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.task import RatchetViolated, TaskHandedIn, TaskInspected, Violation
from holdfast.globs import literal
from holdfast.kinds.mission.acts.checkouts import Laying
from holdfast.kinds.mission.conductor.actions import Inspect
from holdfast.kinds.mission.fold.state import MissionState, TaskState, of_mission
from holdfast.kinds.mission.ratchet.inspection import (
    KIND,
    NEVER_ASKED,
    Inspection,
    answered,
    asking,
    content_digest,
    declared,
    digest_of,
)
from holdfast.kinds.mission.ratchet.inspection import inspect as hold
from holdfast.repo.repository import FileChange, Repository

SHOWN_CHARACTERS = 12_000
"""Most characters of a change shown in the inbox item; the repository has all of it."""


async def inspect(shift: Shift, action: Inspect) -> None:
    """Inspect a task's tree and append the result, unless it was inspected or waits for an approval.

    Raises `RepositoryUnfit` if a tree cannot be read.
    """
    mission, created = of_mission(shift.state), shift.state.created
    assert mission is not None
    assert created is not None
    assert created.mission is not None
    task = mission.tasks[action.task_id]
    if task.status != "handed_in" or task.inspected_tree == task.tree or asking(shift.state, action.effect):
        return
    repository = shift.doors.repository(created.mission.repo)
    changes = await repository.changes(task.base, task.tree)
    before = await _files(repository, task.base, changes, mission)
    after = await _files(repository, task.tree, changes, mission)
    found = _held(mission, task, before, after, changes, mission.allowed)
    weakened = found.of_ratchet()
    allowed: dict[str, str] = {}
    if weakened and weakened == found.violations and not any(each.rule in NEVER_ASKED for each in weakened):
        ask = answered(shift.state, digest_of(weakened, after))
        if ask is None:
            item = await _question(shift, task, action, weakened, after, repository)
            if item is not None:
                await shift.fact(item)
                return
        elif ask.verdict == "approve":
            allowed = {each.path: content_digest(after.get(each.path)) for each in weakened}
            found = _held(mission, task, before, after, changes, {**mission.allowed, **allowed})
            weakened = found.of_ratchet()
    facts: list[Fact] = [_inspected(task, found, allowed)]
    if weakened:
        facts.append(RatchetViolated(task_id=task.task.id, tree=task.tree, violations=weakened))
    await shift.fact(*facts)


def _held(
    mission: MissionState,
    task: TaskState,
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    changes: Sequence[FileChange],
    allowed: Mapping[str, str],
) -> Inspection:
    return hold(
        before,
        after,
        changes,
        protected=mission.contract.protected,
        scope=task.task.scope,
        contract=mission.contract,
        policy=mission.policy,
        allowed=allowed,
        task=f"{task.task.title}\n{task.task.description}",
    )


def _inspected(task: TaskState, found: Inspection, allowed: dict[str, str]) -> TaskInspected:
    return TaskInspected(
        task_id=task.task.id,
        tree=task.tree,
        files=found.files,
        lines=found.lines,
        violations=found.violations,
        unasked=found.unasked,
        allowed=allowed,
    )


async def _files(
    repository: Repository, tree: str, changes: Sequence[FileChange], mission: MissionState
) -> dict[str, bytes]:
    """Return the files of a tree; of a tree that is too large, only changed, protected, and check-determining files."""
    try:
        return await repository.files(tree)
    except RepositoryUnfit:
        changed = [literal(change.path) for change in changes]
        if not changed:
            return {}
        found = await repository.files(tree, (*changed, *mission.contract.protected))
        return (await Laying(repository, mission.contract).base(tree)).files | found


async def _question(
    shift: Shift,
    task: TaskState,
    action: Inspect,
    weakened: Sequence[Violation],
    after: Mapping[str, bytes],
    repository: Repository,
) -> ApprovalRequested | None:
    """Return the inbox item if the worker declared the change of each of these files; None otherwise."""
    handed = await shift.body(task.since_seq)
    if not isinstance(handed, TaskHandedIn) or not declared(weakened, handed.deviations):
        return None
    what = "\n".join(f"- {each.path}: {each.detail or each.rule} ({each.rule})" for each in weakened)
    diff = await repository.diff(task.base, task.tree)
    shown = diff if len(diff) <= SHOWN_CHARACTERS else f"{diff[:SHOWN_CHARACTERS]}\n(cut; the whole is {task.ref})"
    return new_item(
        shift,
        kind=KIND,
        title=f"may task {task.task.id} change {len({each.path for each in weakened})} protected files?",
        action=f"accept exactly these changes of protected files:\n{what}\n\n{shown}",
        call_id=action.effect,
        action_digest=digest_of(weakened, after),
        why="\n".join(handed.deviations),
        touches="the files that decide if the work is right: from then on they count with this content",
        evidence=(task.since_seq,),
        default="deny",
    )
