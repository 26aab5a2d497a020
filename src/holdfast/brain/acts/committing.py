"""Committing a worker's folder whenever it comes to rest, so that nothing of it is only in a sandbox (S24)."""

from __future__ import annotations

from pathlib import Path

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts import restore
from holdfast.brain.acts.roles import owner_of
from holdfast.brain.shift import Shift
from holdfast.errors import HoldfastError, Refused, RepositoryUnfit
from holdfast.facts.mission import Role
from holdfast.facts.repo import RepoCommitted
from holdfast.facts.session import SessionError
from holdfast.facts.shift import ShiftEnded
from holdfast.repo.repository import Commit, Repository
from holdfast.session.roles import role_of
from holdfast.session.state import State

TRIES = 3
"""A branch that somebody moves meanwhile is looked at again so often."""

KEPT = "refs/holdfast"
"""Below it stays reachable what a branch of a task led to before a fresh worker began."""


async def commit(shift: Shift, ended: ShiftEnded) -> bool:
    """Before a shift of a worker ends: commit what it leaves. True when something was appended: decide again.

    What cannot be committed is an event, once for each state of the folder, and does not keep the session from resting.
    """
    state = shift.state
    role = role_of(state)
    if role is None or role.kind != "worker" or not role.ref or not _wanted(state) or state.workspace_with:
        return False
    if shift.uncommitted == state.mutated_seq + 1:
        return False
    try:
        made, parent = await _commit(shift, role)
    except Refused:
        raise
    except HoldfastError as error:
        shift.uncommitted = state.mutated_seq + 1
        message = f"the work could not be committed to {role.ref}: {error}"
        await shift.fact(SessionError(kind=type(error).__name__, message=message))
        return True
    fact = RepoCommitted(
        ref=role.ref,
        commit=made.commit,
        tree=made.tree,
        parent=parent,
        task_id=role.task_id,
        wip=not state.submitted_seq,
        left_out=made.left_out,
    )
    await shift.fact(fact)
    return True


def _wanted(state: State) -> bool:
    """Whether the folder may have changed since its last commit; work that was handed in has one in any case."""
    return state.mutated_seq > state.committed_seq or bool(state.submitted_seq and not state.committed[0])


async def _commit(shift: Shift, role: Role) -> tuple[Commit, str]:
    """Commit and move the branch; returns the commit and its parent. Raises `RepositoryUnfit`."""
    created = shift.state.created
    assert created is not None
    if shift.state.hands is not None and shift.state.hands.holds_workspace:
        await restore.bring_back(shift, await hands_act.current(shift))
    repository = shift.doors.repository(role.repo)
    folder, user = Path(created.workspace.path), owner_of(shift, created.workspace)
    for _ in range(TRIES):
        present = await repository.resolve(role.ref)
        parent = await _parent(shift, repository, role, present)
        made = await repository.commit(folder, (parent,), _message(shift, role), shift.doors.clock.now_us(), user=user)
        old = present.commit if present is not None else None
        if made.commit == old or await repository.point(role.ref, made.commit, old):
            return made, parent
    raise RepositoryUnfit(
        f"{role.ref} was moved by somebody {TRIES} times while it was written; the work is safe in {folder}: leave "
        "that branch alone, then wake the session"
    )


async def _parent(shift: Shift, repository: Repository, role: Role, present: Commit | None) -> str:
    """What the commit goes on from: the branch as it is, unless that is of an earlier worker, which is kept aside."""
    if present is None:
        return role.base
    if shift.state.committed[0] or present.commit == role.base:
        return present.commit
    name = role.ref.removeprefix("refs/heads/holdfast/")
    await repository.point(f"{KEPT}/{name}/{present.commit[:12]}", present.commit, None)
    return role.base


def _message(shift: Shift, role: Role) -> str:
    what = "handed in" if shift.state.submitted_seq else "work in progress"
    return f"{role.task_id}: {what}\n\nHoldfast-Session: {shift.state.session_id}\nHoldfast-Task: {role.task_id}\n"
