"""Main branch of a mission: set to the base, then moved from merge to merge by compare-and-swap only (S23).

A merge is made and recorded as an intent before the branch is moved. After a crash, recovery compares the main branch
with the recorded intent: at the merge, it was moved; at the old commit, it is moved now; elsewhere, a user decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.brain.shift import Shift
from holdfast.errors import RepositoryUnfit
from holdfast.facts.base import Fact
from holdfast.facts.mission import ContractSealed, Mission, MissionOpened
from holdfast.facts.task import MergeStarted, RepoConflicted, RepoMerged, RepoMoved, TaskJudged
from holdfast.globs import matches
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Look, Open
from holdfast.kinds.mission.conductor.tasks import by_rubric
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.fold.merges import NOWHERE
from holdfast.kinds.mission.fold.state import MissionState, OpenMerge, of_mission
from holdfast.kinds.mission.role.submissions import scope_of
from holdfast.repo.repository import Commit, Conflict, Repository

TOUCHED_SHOWN = 5
"""Most changed paths recorded with an invalidated verdict."""


def main_ref(name: str) -> str:
    """Name of a mission's main branch."""
    return f"refs/heads/holdfast/{name}/main"


def next_ref(name: str) -> str:
    """Name of the integration branch, with merges that are not checked yet."""
    return f"refs/heads/holdfast/{name}/next"


def kept_ref(name: str, what: str) -> str:
    """Name of a ref that keeps a commit reachable."""
    return f"refs/holdfast/{name}/{what}"


async def open_mission(shift: Shift, action: Open) -> None:
    """Set the main branch to the base and seal the contract. Raises `RepositoryUnfit` if the name is taken."""
    mission, given, repository = _at(shift)
    if mission.opened_seq:
        return
    base = await _commit(repository, given.base)
    ref = main_ref(given.name)
    if not await repository.point(ref, base.commit, None):
        found = await repository.resolve(ref)
        if found is None or found.commit != base.commit:
            raise RepositoryUnfit(
                f"{given.repo} has a branch {ref.removeprefix('refs/heads/')} already, at "
                f"{found.commit[:12] if found else 'another commit'}; nothing was changed. Give the mission another "
                "`name`, or rename that branch"
            )
    await _keep(repository, kept_ref(given.name, "base"), base.commit)
    contract = mission.contract
    await shift.fact(
        ContractSealed(
            digest=contract_digest(contract),
            items=len(contract.items),
            criteria=len(contract.criteria()),
            author=shift.state.owner,
        ),
        MissionOpened(name=given.name, ref=ref, base=base.commit, tree=base.tree),
    )


async def look(shift: Shift, action: Look) -> None:
    """Record new commits of the followed branch, and a main branch that another process moved."""
    await _look(shift)


async def _look(shift: Shift) -> None:
    mission, given, repository = _at(shift)
    facts: list[Fact] = []
    if given.follow:
        found = await repository.resolve(given.follow)
        known = (mission.followed, mission.moved)
        if found is not None and found.commit not in known:
            moved = RepoMoved(ref=given.follow, expected=mission.followed, found=found.commit, followed=True)
            facts.append(moved)
    main = await repository.resolve(mission.ref)
    found_at = main.commit if main is not None else ""
    merge = mission.merge
    right = found_at in (mission.main, merge.commit if merge is not None else mission.main)
    if mission.astray if right else mission.astray != (found_at or NOWHERE):
        facts.append(RepoMoved(ref=mission.ref, expected=mission.main, found=found_at))
    if facts:
        await shift.fact(*facts)


class _Made(NamedTuple):
    """Result of merging branches: the last merge, its tasks, the followed commit in it, and the conflicts."""

    at: Commit
    tasks: tuple[str, ...]
    base: str
    conflicts: tuple[RepoConflicted, ...]


async def assemble(shift: Shift, action: Assemble) -> None:
    """Merge branches one after another, and record the intended main branch without moving it.

    New commits of the followed branch come first and are merged on their own.
    """
    mission, given, repository = _at(shift)
    if given.follow:
        await _look(shift)
        mission, given, repository = _at(shift)
    if mission.merge is not None or mission.astray:
        return
    made = await _merged(shift, action, repository)
    facts: list[Fact] = list(made.conflicts)
    if made.tasks or made.base:
        started = MergeStarted(
            batch=action.batch,
            ref=mission.ref,
            onto=action.onto,
            tasks=made.tasks,
            commit=made.at.commit,
            tree=made.at.tree,
            base=made.base,
        )
        await _keep(repository, kept_ref(given.name, f"merge/{action.batch}"), made.at.commit)
        facts.append(started)
    if facts:
        await shift.fact(*facts)
    if made.tasks and mission.policy.gate == "green_branch":
        await _keep(repository, next_ref(given.name), made.at.commit)


async def _merged(shift: Shift, action: Assemble, repository: Repository) -> _Made:
    """Merge branches one after another. Several make one step of the main branch, so that each commit on its
    first-parent line was checked (S26).
    """
    mission, given, _ = _at(shift)
    at_us = await _date_us(shift, action)
    known = Commit(mission.main, mission.main_tree)
    onto = at = known if action.onto == known.commit else await _commit(repository, action.onto)
    steps: list[str] = []
    conflicts: list[RepoConflicted] = []
    for name, commit, words in _branches(mission, given, action):
        found = await repository.merge(at.commit, commit, words, at_us)
        if isinstance(found, Conflict):
            conflicts.append(RepoConflicted(task_id=name, onto=at.commit, commit=commit, paths=found.paths))
        else:
            at = found
            steps.append(name)
    if len(steps) > 1 and at.commit != onto.commit:
        names = [name or given.follow.removeprefix("refs/heads/") for name in steps]
        message = f"Merge {', '.join(names)}\n\nMission: {given.name}\n"
        whole = await repository.merge(onto.commit, at.commit, message, at_us)
        assert isinstance(whole, Commit), "a descendant of the main branch merges with it"
        at = whole
    tasks = tuple(name for name in steps if name)
    return _Made(at, tasks, action.base if "" in steps else "", tuple(conflicts))


def _branches(mission: MissionState, given: Mission, action: Assemble) -> Iterator[tuple[str, str, str]]:
    """Return the task, commit, and message of each merge; the followed branch has an empty task."""
    if action.base:
        words = f"Take in {given.follow.removeprefix('refs/heads/')}\n\nMission: {given.name}\n"
        yield "", action.base, words
    for name in action.tasks:
        task = mission.tasks[name].task
        title = task.title.splitlines()[0] if task.title else name
        criteria = "".join(f"Criterion: {each}\n" for each in task.criteria)
        yield name, mission.tasks[name].commit, f"Merge {name}: {title}\n\nMission: {given.name}\n{criteria}"


async def _date_us(shift: Shift, action: Assemble) -> int:
    """Return the date of merges: that of the latest event that led to them, so that repeated merges are identical."""
    mission, _, _ = _at(shift)
    seqs = [mission.opened_seq, *(mission.tasks[name].since_seq for name in action.tasks)]
    seq = max([*seqs, mission.moved_seq] if action.base else seqs)
    event, *_ = await shift.doors.log.read(shift.state.session_id, after=seq - 1, limit=1)
    return event.at_us


async def advance(shift: Shift, action: Advance) -> None:
    """Move the main branch to the green merge. `action.passed` are the criteria that pass there."""
    mission, _, repository = _at(shift)
    merge = mission.merge
    if merge is None:
        return
    moved = await repository.point(merge.ref, merge.commit, merge.onto)
    if not moved:
        found = await repository.resolve(merge.ref)
        if found is None or found.commit != merge.commit:
            at = found.commit if found is not None else ""
            if mission.astray != (at or NOWHERE):
                await shift.fact(RepoMoved(ref=merge.ref, expected=merge.onto, found=at))
            return
    await shift.fact(
        RepoMerged(
            batch=merge.batch,
            ref=merge.ref,
            commit=merge.commit,
            tree=merge.tree,
            onto=merge.onto,
            tasks=merge.tasks,
            passed=action.passed,
            base=merge.base,
            touched=await _touched(shift, merge, repository),
        )
    )


async def _touched(shift: Shift, merge: OpenMerge, repository: Repository) -> dict[str, tuple[str, ...]]:
    """Return the criteria whose judge read files that this merge changes, each with the first such file (S26)."""
    mission, _, _ = _at(shift)
    merged = {name for task in merge.tasks for name in mission.tasks[task].task.criteria}
    touched: dict[str, tuple[str, ...]] = {}
    for name in by_rubric(mission, tuple(mission.rubric)):
        judged = await shift.body(mission.rubric[name]) if name in merged or name in mission.passed else None
        if not isinstance(judged, TaskJudged):
            continue
        scope = scope_of(mission.contract, judged, name)
        try:
            paths = [change.path for change in await repository.changes(judged.tree, merge.tree)]
        except RepositoryUnfit:
            touched[name] = ()  # the judged tree can no longer be read, so any change may matter
            continue
        looked_at = [path for path in paths if not scope or matches(path, scope)]
        if looked_at:
            touched[name] = tuple(looked_at[:TOUCHED_SHOWN])
    return touched


def _at(shift: Shift) -> tuple[MissionState, Mission, Repository]:
    mission, created = of_mission(shift.state), shift.state.created
    assert mission is not None
    assert created is not None
    assert created.mission is not None
    return mission, created.mission, shift.doors.repository(created.mission.repo)


async def _commit(repository: Repository, name: str) -> Commit:
    found = await repository.resolve(name)
    if found is None:
        raise RepositoryUnfit(
            f"the repository has no commit {name}; nothing was changed: fetch it, then wake the mission"
        )
    return found


async def _keep(repository: Repository, ref: str, commit: str) -> None:
    """Set a ref of the harness to a commit."""
    if not await repository.point(ref, commit, None):
        found = await repository.resolve(ref)
        await repository.point(ref, commit, found.commit if found is not None else None)
