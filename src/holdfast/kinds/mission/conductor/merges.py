"""Merge queue and main branch: the next batch, requirements on its tree, and consequences of a red batch (S23, S26).

Branches are merged several at a time and checked once. When the batch is red, a part of it is tried first. If that part
is green, it is merged, and the rest must be at fault: together they are the tree that was red before, whose verdict is
recorded, so that trying them costs nothing until they are divided again. If it is red, nothing is known of the rest:
they return to the queue and are merged with other branches. A single red branch is at fault. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from holdfast.facts.task import BatchRefused, TaskRefused
from holdfast.kinds.mission.check import metrics, proofs
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Found, Verify
from holdfast.kinds.mission.fold.state import BASE, LAST, MissionState, OpenMerge
from holdfast.session.actions import Record
from holdfast.session.state import State

BROKEN_MAX = 3
"""Failed attempts at a verification after which it is given up together with its task."""

PRIOR_BAD, PRIOR_SEEN = 0.8, 20.0
"""Prior for the share of bad branches: as if `PRIOR_BAD` of `PRIOR_SEEN` branches had been bad."""


def before(mission: MissionState, running: frozenset[str]) -> Found:
    """Verify the base first: guards, metrics, and how each check can fail. None if all is known."""
    names = unknown(mission)
    if not (names or proofs.unmeasured(mission)) or BASE in running or mission.broken.get(BASE, 0) >= BROKEN_MAX:
        return None
    return Verify(BASE, mission.main, mission.main_tree, names)


def at_the_end(mission: MissionState) -> Verify | None:
    """Try unmet criteria on the main branch once more: they may hold although their tasks failed."""
    names = unmet_unknown(mission)
    effect = f"end:{mission.main_tree}"
    if not names or mission.broken.get(effect, 0) >= BROKEN_MAX:
        return None
    return Verify(effect, mission.main, mission.main_tree, names)


def last_proof(mission: MissionState) -> Verify | None:
    """Prove on the last tree all that passed on earlier ones: a later change may have fooled its check."""
    known = mission.contract.criteria()
    checked = [name for name, criterion in known.items() if criterion.check is not None and name in mission.passed]
    names = tuple(name for name in checked if not proofs.is_of(mission, name, mission.main_tree))
    effect = f"{LAST}{mission.batches}:{mission.main_tree}"
    return Verify(effect, mission.main, mission.main_tree, names) if names else None


def step(state: State, mission: MissionState, running: frozenset[str]) -> Found:
    """Return the next action for the main branch; None while it waits for branches or an effect."""
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
    return Assemble(effect, mission.batches + 1, mission.main, tasks) if tasks else None


def _open(mission: MissionState, merge: OpenMerge, running: frozenset[str]) -> Found:
    """Return the next action for an open merge: verify its tree, refuse it, or move the main branch to it."""
    advance = f"advance:{merge.batch}"
    if advance in running:
        return None  # what passes on the former tree meanwhile is checked again on this one
    wanted = needed(mission, merge.tasks)
    missing = tuple(name for name in wanted if mission.verdict(merge.tree, name) is None)
    red = tuple(name for name in wanted if name not in missing and not stands(mission, merge.tree, name, merge.tasks))
    effect = f"merged:{merge.batch}"
    if effect in running:
        return None
    if red:
        return _red(mission, merge, red)  # further failures would not change the decision
    if missing:
        if mission.broken.get(effect, 0) >= BROKEN_MAX:
            return _red(mission, merge, missing)
        return Verify(effect, merge.commit, merge.tree, missing)
    verdicts = {name: mission.verdict(merge.tree, name) for name in wanted}
    passed = tuple(name for name, verdict in verdicts.items() if verdict is not None and verdict.outcome == "pass")
    return Advance(advance, passed)


def _red(mission: MissionState, merge: OpenMerge, red: tuple[str, ...]) -> Record:
    """Refuse a red tree: parts of the batch are tried, a single task is sent back."""
    refused = after_red(mission, merge, red)
    facts: list[BatchRefused | TaskRefused] = [refused]
    known = mission.contract.criteria()
    seqs = tuple(verdict.seq for name in red if (verdict := mission.verdict(merge.tree, name)) is not None)
    issues = tuple(
        f"{name} failed after the merge with the main branch{metrics.words(mission, merge.tree, name)}"
        f"{verdict_note(mission, merge.tree, name)}: {known[name].text}"
        for name in red
        if name in known
    )
    for name in refused.culprits:
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


# --- criteria that a tree must pass --------------------------------------------------------------


def needed(mission: MissionState, tasks: Iterable[str]) -> tuple[str, ...]:
    """Return the criteria that must pass on the merged tree of these tasks, in the order of the contract.

    They are all that passed on the main branch, guards not known to fail there, metrics with a value there, and the
    criteria of the tasks. Criteria without a check are left to judges.
    """
    wanted = set(mission.passed)
    for name in tasks:
        wanted.update(mission.tasks[name].task.criteria)
    verdicts = mission.verdicts.get(mission.main_tree, {})
    failing = {name for name, verdict in verdicts.items() if verdict.outcome != "pass"}
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None
        and (name in wanted or (criterion.guard and name not in failing) or mission.curves.get(name))
    )


def stands(mission: MissionState, tree: str, name: str, tasks: Iterable[str] = ()) -> bool:
    """Return True if the recorded verdict on a criterion admits the merged tree of these tasks (S26).

    A metric below its target must be better there when one of the tasks is for it, and not worse when none is.
    """
    verdict = mission.verdict(tree, name)
    if verdict is not None and verdict.outcome == "pass":
        return True
    mine = any(name in mission.tasks[task].task.criteria for task in tasks)
    return metrics.improves(mission, tree, name) if mine else metrics.keeps(mission, tree, name)


def unknown(mission: MissionState) -> tuple[str, ...]:
    """Return guards without a verdict on the main branch; before the first merge also metrics: their first values."""
    known = mission.contract.criteria()
    return tuple(
        name
        for name in unmet_unknown(mission)
        if known[name].guard or (metrics.still_open(mission, name) and not mission.batches)
    )


def unmet_unknown(mission: MissionState) -> tuple[str, ...]:
    """Return criteria with a check that are unmet and have no verdict on the current main branch."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None
        and name not in mission.passed
        and mission.verdict(mission.main_tree, name) is None
    )


def verdict_note(mission: MissionState, tree: str, name: str) -> str:
    """Explain in brackets why a check is red although it may have exited with 0; empty if there is no such reason."""
    verdict = mission.verdict(tree, name)
    return f" ({verdict.note})" if verdict is not None and verdict.note else ""


# --- batches -------------------------------------------------------------------------------------


def next_batch(mission: MissionState) -> tuple[str, ...]:
    """Return the queued tasks to merge now, in merge order: parts of a red batch first, then tasks in plan order."""
    queued = [name for name, task in mission.tasks.items() if task.status == "queued"]
    for group in mission.groups:
        left = tuple(name for name in group if name in queued)
        if left:
            return left
    return tuple(queued if mission.policy.gate == "green_branch" else queued[: batch_size(mission)])


def batch_size(mission: MissionState) -> int:
    """Return the number of branches to merge at once so that about half of the batches are green.

    It is estimated from this mission's branches so far, up to the policy's `batch`.
    """
    if mission.policy.gate == "each":
        return 1
    good = sum(task.status == "merged" for task in mission.tasks.values())
    bad = sum(task.refusals.get("regression", 0) for task in mission.tasks.values())
    rate = min((PRIOR_BAD + bad) / (PRIOR_SEEN + good + bad), 0.5)
    wanted = max(1, round(math.log(0.5) / math.log1p(-rate)))
    return max(1, min(wanted, mission.policy.batch))


def after_red(mission: MissionState, merge: OpenMerge, failed: tuple[str, ...]) -> BatchRefused:
    """Refuse a red merge: return the task at fault, or the parts of the batch to try."""
    tasks = merge.tasks
    culprits: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    owners = tuple(name for name in tasks if not set(failed).isdisjoint(mission.tasks[name].task.criteria))
    if not tasks:
        groups = tuple(mission.groups)
    elif len(tasks) == 1:
        culprits = tasks
    elif owners and len(owners) < len(tasks):
        groups = (tuple(name for name in tasks if name not in owners), owners)
    else:
        half = (len(tasks) + 1) // 2
        groups = (tasks[:half], tasks[half:])
    return BatchRefused(
        batch=merge.batch,
        onto=merge.onto,
        tree=merge.tree,
        tasks=tasks,
        failed=failed,
        culprits=culprits,
        groups=groups,
    )
