"""Merge queue and main branch: the next batch, what its tree must pass, and what follows from a red one (S23, S26).
Pure.

Branches are merged several at a time and checked once. When the batch is red, a part of it is tried first. If that part
is green, it is merged, and the rest must be at fault: together they are the tree that was red before, whose verdict is
recorded, so that trying them costs nothing until they are divided again. If it is red, nothing is known of the rest:
they go back to the queue and are merged with the other branches. A single red branch is at fault."""

from __future__ import annotations

import math
from collections.abc import Iterable

from holdfast.facts.repo import BatchRefused
from holdfast.facts.task import TaskRefused
from holdfast.kinds.mission.check import metrics, proofs
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, MissionAction, Verify
from holdfast.kinds.mission.fold.state import BASE, LAST, MissionState, OpenMerge
from holdfast.session.actions import Action, Record
from holdfast.session.state import State

Found = Action | MissionAction | None


def before(mission: MissionState, running: frozenset[str]) -> Found:
    """What holds before the work begins, and how each check can fail, is found out first; None when it is known."""
    names = unknown(mission)
    if not (names or proofs.unmeasured(mission)) or BASE in running or mission.broken.get(BASE, 0) >= BROKEN_MAX:
        return None
    return Verify(BASE, mission.main, mission.main_tree, names)


def at_the_end(mission: MissionState) -> Verify | None:
    """Criteria whose tasks came to nothing may hold all the same: they are tried once on the main line."""
    names = unmet_unknown(mission)
    effect = f"end:{mission.main_tree}"
    if not names or mission.broken.get(effect, 0) >= BROKEN_MAX:
        return None
    return Verify(effect, mission.main, mission.main_tree, names)


def last_proof(mission: MissionState) -> Verify | None:
    """What passed on earlier trees is proven once more on the last one: a later change may have fooled its check."""
    known = mission.contract.criteria()
    checked = [name for name, criterion in known.items() if criterion.check is not None and name in mission.passed]
    names = tuple(name for name in checked if not proofs.is_of(mission, name, mission.main_tree))
    return (
        Verify(f"{LAST}{mission.batches}:{mission.main_tree}", mission.main, mission.main_tree, names)
        if names
        else None
    )


def step(state: State, mission: MissionState, running: frozenset[str]) -> Found:
    """What the main line needs next; None when it waits for branches, or for an effect."""
    if mission.astray:
        return None
    if mission.merge is not None:
        return _open(mission, mission.merge, running)
    effect = f"merge:{mission.batches + 1}"
    if effect in running:
        return None
    if mission.moved and mission.moved not in (mission.refused_base, mission.followed):
        return Assemble(effect, mission.batches + 1, mission.main, (), mission.moved)
    tasks = next_batch(mission)
    if tasks:
        return Assemble(effect, mission.batches + 1, mission.main, tasks)
    return None


def _open(mission: MissionState, merge: OpenMerge, running: frozenset[str]) -> Found:
    wanted = needed(mission, merge.tasks)
    missing = tuple(name for name in wanted if mission.verdict(merge.tree, name) is None)
    red = tuple(name for name in wanted if name not in missing and not stands(mission, merge.tree, name, merge.tasks))
    effect = f"merged:{merge.batch}"
    if effect in running:
        return None
    if red:
        return _red(mission, merge, red)  # where else it fails, nobody needs to know
    if missing:
        if mission.broken.get(effect, 0) >= BROKEN_MAX:
            return _red(mission, merge, missing)
        return Verify(effect, merge.commit, merge.tree, missing)
    advance = f"advance:{merge.batch}"
    passed = tuple(name for name in wanted if _passes(mission, merge.tree, name))
    return None if advance in running else Advance(advance, passed)


def _passes(mission: MissionState, tree: str, name: str) -> bool:
    verdict = mission.verdict(tree, name)
    return verdict is not None and verdict.outcome == "pass"


def _red(mission: MissionState, merge: OpenMerge, red: tuple[str, ...]) -> Record:
    """A red tree never becomes the main line: parts of it are tried, one alone is sent back."""
    refused: BatchRefused = after_red(mission, merge, red)
    facts: list[BatchRefused | TaskRefused] = [refused]
    known = mission.contract.criteria()
    seqs = tuple(verdict.seq for name in red if (verdict := mission.verdict(merge.tree, name)) is not None)
    for name in refused.culprits:
        notes = {
            each: metrics.words(mission, merge.tree, each) + verdict_note(mission, merge.tree, each) for each in red
        }
        issues = tuple(
            f"{each} failed once this was merged with the main line{notes[each]}: {known[each].text}"
            for each in red
            if each in known
        )
        facts.append(
            TaskRefused(
                task_id=name,
                child_id=mission.tasks[name].child_id,
                kind="regression",
                issues=issues,
                tree=merge.tree,
                evidence=seqs,
            )
        )
    return Record(tuple(facts))


BROKEN_MAX = 3
"""A verification that could not be done so often ends its task."""


def needed(mission: MissionState, tasks: Iterable[str]) -> tuple[str, ...]:
    """The criteria that have to pass on the tree that these tasks are merged into, in the order of the contract.

    All that passed on the main line, guards that hold there, metrics with a value there, and what the tasks are for. A
    rubric line is not among them: no command checks it.
    """
    wanted = set(mission.passed)
    for name in tasks:
        wanted.update(mission.tasks[name].task.criteria)
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None
        and (name in wanted or (criterion.guard and _holds(mission, name)) or mission.curves.get(name))
    )


def stands(mission: MissionState, tree: str, name: str, tasks: Iterable[str] = ()) -> bool:
    """Whether a recorded verdict lets the tree of these tasks become the main line (S26).

    A metric that has not reached its target has to be better there when one of the tasks is for it, and not worse when
    none is.
    """
    verdict = mission.verdict(tree, name)
    if verdict is not None and verdict.outcome == "pass":
        return True
    mine = any(name in mission.tasks[task].task.criteria for task in tasks)
    return metrics.improves(mission, tree, name) if mine else metrics.keeps(mission, tree, name)


def _holds(mission: MissionState, guard: str) -> bool:
    """Whether a guard is not known to fail on the main line: one that never held there accuses nobody."""
    verdict = mission.verdict(mission.main_tree, guard)
    return verdict is None or verdict.outcome == "pass"


def unknown(mission: MissionState) -> tuple[str, ...]:
    """Guards that nobody checked on the main line yet, and before the first merge metrics: where they begin."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if (criterion.guard or (metrics.still_open(mission, name) and not mission.batches))
        and criterion.check is not None
        and name not in mission.passed
        and mission.verdict(mission.main_tree, name) is None
    )


def unmet_unknown(mission: MissionState) -> tuple[str, ...]:
    """Criteria that are not met by any record, and that nobody tried on the main line as it is now."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None
        and name not in mission.passed
        and mission.verdict(mission.main_tree, name) is None
    )


def is_green(mission: MissionState, tree: str, tasks: Iterable[str]) -> bool:
    """Whether recorded verdicts say that the tree passes all that it has to (S26)."""
    names = tuple(tasks)
    return all(stands(mission, tree, name, names) for name in needed(mission, names))


def verdict_note(mission: MissionState, tree: str, name: str) -> str:
    """Why a check is red although it may have exited with 0, in brackets; empty when its exit status says it."""
    verdict = mission.verdict(tree, name)
    return f" ({verdict.note})" if verdict is not None and verdict.note else ""


PRIOR_BAD, PRIOR_SEEN = 0.8, 20.0
"""What is thought of branches before any was seen: so many bad ones among so many."""


def next_batch(mission: MissionState) -> tuple[str, ...]:
    """The queued tasks to merge now, in the order of their merging; none when none is queued.

    Parts of a red batch come first, then tasks in the order of the plan.
    """
    queued = [name for name, task in mission.tasks.items() if task.status == "queued"]
    for group in mission.groups:
        left = tuple(name for name in group if name in queued)
        if left:
            return left
    return tuple(queued if mission.policy.gate == "green_branch" else queued[: batch_size(mission)])


def batch_size(mission: MissionState) -> int:
    """How many branches to merge at once, so that about half of the batches are green.

    It follows what was seen of branches in this mission, up to the policy's `batch`.
    """
    if mission.policy.gate == "each":
        return 1
    good = sum(task.status == "merged" for task in mission.tasks.values())
    bad = sum(task.refusals.get("regression", 0) for task in mission.tasks.values())
    rate = min((PRIOR_BAD + bad) / (PRIOR_SEEN + good + bad), 0.5)
    wanted = max(1, round(math.log(0.5) / math.log1p(-rate)))
    return max(1, min(wanted, mission.policy.batch))


def after_red(mission: MissionState, merge: OpenMerge, failed: tuple[str, ...]) -> BatchRefused:
    """What follows from a red merge: who is at fault, or which parts to try."""
    tasks = merge.tasks
    if not tasks:
        return _refused(merge, failed, groups=tuple(mission.groups))
    if len(tasks) == 1:
        return _refused(merge, failed, culprits=tasks)
    owners = tuple(name for name in tasks if not set(failed).isdisjoint(mission.tasks[name].task.criteria))
    if owners and len(owners) < len(tasks):
        rest = tuple(name for name in tasks if name not in owners)
        return _refused(merge, failed, groups=(rest, owners))
    half = (len(tasks) + 1) // 2
    return _refused(merge, failed, groups=(tasks[:half], tasks[half:]))


def _refused(
    merge: OpenMerge,
    failed: tuple[str, ...],
    *,
    culprits: tuple[str, ...] = (),
    groups: tuple[tuple[str, ...], ...] = (),
) -> BatchRefused:
    return BatchRefused(
        batch=merge.batch,
        onto=merge.onto,
        tree=merge.tree,
        tasks=merge.tasks,
        failed=failed,
        culprits=culprits,
        groups=groups,
    )
