"""Worker in one shift: its memory, and the commit of its folder whenever the session parks (S24)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.brain.acts import environment as environment_act
from holdfast.brain.acts import hands as hands_act
from holdfast.brain.shift import Acts, Shift
from holdfast.errors import HoldfastError, Refused, RepositoryUnfit
from holdfast.facts.mission import Role
from holdfast.facts.session import SessionError
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.task import RepoCommitted
from holdfast.globs import literal, matches
from holdfast.kinds.hooks.running import Hooked
from holdfast.kinds.mission.acts.open_roles import owner_of
from holdfast.kinds.mission.role.fold import role_state
from holdfast.kinds.mission.role.kind import role_of
from holdfast.repo.repository import Commit, Kept, Repository


class Working(Acts):
    """Memory of a role in one shift.

    `hooks` are those of its project once read; `handed` is the commit of its tree before they ran at its submission.
    `uncommitted` is one more than the position of a change that could not be committed, 0 for none.
    """

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.hooks: Hooked | None = None
        self.handed = ""
        self.uncommitted = 0


def working(shift: Shift) -> Working:
    """Return the memory of a role in this shift."""
    assert isinstance(shift.acts, Working)
    return shift.acts


TRIES = 3
"""Attempts to move a branch that another process moves meanwhile."""

NAMED = 20
"""Most paths named in an event."""

KEPT = "refs/holdfast"
"""Prefix of refs that keep the commits of earlier workers of a task reachable."""


async def commit(shift: Shift, ended: ShiftEnded) -> bool:
    """Commit a worker's folder before its shift ends. Return True if that appended an event, to decide again.

    A failure to commit is recorded once for each state of the folder, and does not keep the session from parking.
    """
    state = shift.state
    role = role_of(state)
    if role is None or role.kind != "worker" or not role.ref or state.workspace_with:
        return False
    own = role_state(state)
    if state.mutated_seq <= own.committed_seq and not (own.submitted_seq and not own.committed[0]):
        return False  # unchanged since the last commit; submitted work always has one
    memory = working(shift)
    if memory.uncommitted == state.mutated_seq + 1:
        return False
    try:
        made, parent, by_checks = await _commit(shift, role)
    except Refused:
        raise
    except HoldfastError as error:
        memory.uncommitted = state.mutated_seq + 1
        message = f"the work could not be committed to {role.ref}: {error}"
        await shift.fact(SessionError(kind=type(error).__name__, message=message))
        return True
    fact = RepoCommitted(
        ref=role.ref,
        commit=made.commit,
        tree=made.tree,
        parent=parent,
        task_id=role.task_id,
        wip=not own.submitted_seq,
        left_out=made.left_out,
        by_checks=by_checks[:NAMED],
    )
    memory.handed = ""
    await shift.fact(fact)
    return True


async def look(shift: Shift, role: Role) -> str:
    """Commit the folder as it is, on no branch; return an empty text if that is impossible."""
    try:
        return (await _read(shift, role, role.base, shift.doors.repository(role.repo), ())).commit
    except RepositoryUnfit:
        return ""


async def _read(shift: Shift, role: Role, parent: str, repository: Repository, more: Sequence[Kept]) -> Commit:
    created = shift.state.created
    assert created is not None
    if shift.state.hands is not None and shift.state.hands.holds_workspace:
        await environment_act.bring_back(shift, await hands_act.current(shift))
    folder, user = Path(created.workspace.path), owner_of(shift, created.workspace)
    kept = (*([Kept(role.base, role.hidden)] if role.hidden else []), *more)
    at_us = shift.doors.clock.now_us()
    what = "handed in" if role_state(shift.state).submitted_seq else "work in progress"
    trailers = f"Holdfast-Session: {shift.state.session_id}\nHoldfast-Task: {role.task_id}\n"
    message = f"{role.task_id}: {what}\n\n{trailers}"
    return await repository.commit(folder, (parent,), message, at_us, user=user, kept=kept)


async def _commit(shift: Shift, role: Role) -> tuple[Commit, str, tuple[str, ...]]:
    """Commit and move the branch; return the commit, its parent, and files by checks. Raises `RepositoryUnfit`."""
    repository = shift.doors.repository(role.repo)
    for _ in range(TRIES):
        present = await repository.resolve(role.ref)
        parent = await _parent(shift, repository, role, present)
        made = await _read(shift, role, parent, repository, ())
        by_checks = await _by_checks(shift, repository, role, made)
        if by_checks:
            as_left = Kept(working(shift).handed, tuple(literal(path) for path in by_checks))
            made = await _read(shift, role, parent, repository, (as_left,))
        old = present.commit if present is not None else None
        if made.commit == old or await repository.point(role.ref, made.commit, old):
            return made, parent, by_checks
    created = shift.state.created
    assert created is not None
    raise RepositoryUnfit(
        f"{role.ref} was moved from outside {TRIES} times while it was written; the work is safe in "
        f"{created.workspace.path}: leave that branch alone, then wake the session"
    )


async def _by_checks(shift: Shift, repository: Repository, role: Role, made: Commit) -> tuple[str, ...]:
    """Return the files that hooks and checks wrote since the submission, except product files that they changed."""
    handed = working(shift).handed
    if not handed or not role_state(shift.state).submitted_seq:
        return ()
    changes = await repository.changes(handed, made.tree)
    return tuple(each.path for each in changes if each.kind != "changed" or matches(each.path, role.protected))


async def _parent(shift: Shift, repository: Repository, role: Role, present: Commit | None) -> str:
    """Return the parent of the commit: the branch, unless it is an earlier worker's, which a ref then keeps."""
    if present is None:
        return role.base
    if role_state(shift.state).committed[0] or present.commit == role.base:
        return present.commit
    name = role.ref.removeprefix("refs/heads/holdfast/")
    await repository.point(f"{KEPT}/{name}/{present.commit[:12]}", present.commit, None)
    return role.base
