"""The fold of what the harness finds out and merges: verdicts, batches, the main line."""

from __future__ import annotations

from holdfast.facts.codec import Event
from holdfast.facts.mission import (
    CriterionChecked,
    FlakeNoted,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.repo import BatchRefused, MergeStarted, RepoConflicted, RepoMerged, RepoMoved
from holdfast.session.fold_mission_shared import for_missions, note_failure, of_mission, turn
from holdfast.session.state import State
from holdfast.session.state_mission import (
    OVER,
    MissionState,
    OpenMerge,
    OpenVerification,
    Verdict,
)

NOWHERE = "nowhere"
"""Where the main line is when somebody deleted it."""

TREES_KEPT = 16
"""Verdicts of so many refused merges are kept: what is left of a red batch is often the same tree again."""

VERDICTS_KEPT = 2_000
"""So many verdicts are kept of trees that nothing leads to any more."""


def _verifying(state: State, fact: VerificationStarted, event: Event) -> None:
    of_mission(state).verifications[fact.effect] = OpenVerification(
        event.seq, fact.verification_id, fact.effect, fact.tree, fact.criteria, fact.hands, fact.key
    )


def _checked(state: State, fact: CriterionChecked, event: Event) -> None:
    mission = of_mission(state)
    verdicts = mission.verdicts.setdefault(fact.tree, {})
    for name in fact.criteria:
        verdicts[name] = Verdict(event.seq, fact.outcome, fact.key)
        if fact.outcome == "pass" and fact.tree == mission.main_tree:
            mission.passed.setdefault(name, event.seq)


def _verified(state: State, fact: VerificationEnded, event: Event) -> None:
    mission = of_mission(state)
    mission.verifications.pop(fact.effect, None)
    if fact.error:
        mission.broken[fact.effect] = mission.broken.get(fact.effect, 0) + 1
        note_failure(mission, f"a verification could not be done: {fact.error}")
    else:
        mission.broken.pop(fact.effect, None)


def _flake(state: State, fact: FlakeNoted, event: Event) -> None:
    flakes = of_mission(state).flakes
    flakes[fact.criterion] = flakes.get(fact.criterion, 0) + 1


def _merging(state: State, fact: MergeStarted, event: Event) -> None:
    mission = of_mission(state)
    mission.batches = max(mission.batches, fact.batch)
    if fact.tasks and mission.groups and set(mission.groups[0]) >= set(fact.tasks):
        mission.groups.pop(0)
    mission.merge = OpenMerge(event.seq, fact.batch, fact.ref, fact.onto, fact.tasks, fact.commit, fact.tree, fact.base)


def _merged(state: State, fact: RepoMerged, event: Event) -> None:
    mission = of_mission(state)
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
        turn(task, "merged", event)
    _forget_trees(mission)


def _forget_trees(mission: MissionState) -> None:
    """Verdicts of trees that nothing leads to any more are in the log alone, when they are many.

    What was handed in may be handed in again, by another worker: it has few verdicts, so those go last.
    """
    wanted = {mission.main_tree, *(task.tree for task in mission.tasks.values() if task.status not in OVER)}
    wanted |= {each.tree for each in mission.verifications.values()} | set(mission.red_trees)
    left = VERDICTS_KEPT
    for tree in sorted(reversed(mission.verdicts), key=lambda tree: len(mission.verdicts[tree])):
        left -= len(mission.verdicts[tree])
        if left < 0:
            break
        wanted.add(tree)
    mission.verdicts = {tree: known for tree, known in mission.verdicts.items() if tree in wanted}


def _conflicted(state: State, fact: RepoConflicted, event: Event) -> None:
    mission = of_mission(state)
    if not fact.task_id:
        mission.refused_base = fact.commit
        note_failure(mission, f"new commits of the followed branch did not merge: {', '.join(fact.paths[:5])}")
        return
    mission.groups = [left for group in mission.groups if (left := tuple(n for n in group if n != fact.task_id))]
    task = mission.tasks[fact.task_id]
    task.conflicts += 1
    task.start = ""
    note_failure(mission, f"task {fact.task_id} did not merge: {', '.join(fact.paths[:5])}")
    turn(task, "planned", event)


def _moved(state: State, fact: RepoMoved, event: Event) -> None:
    mission = of_mission(state)
    if fact.followed:
        mission.moved, mission.moved_seq = fact.found, event.seq
    else:
        mine = (mission.main, mission.merge.commit if mission.merge is not None else mission.main)
        mission.astray = "" if fact.found in mine else fact.found or NOWHERE


def _batch_refused(state: State, fact: BatchRefused, event: Event) -> None:
    mission = of_mission(state)
    if mission.merge is not None and len(fact.tasks) == 1:
        mission.tasks[fact.tasks[0]].start = mission.merge.commit
    if mission.merge is not None and not fact.tasks:
        mission.refused_base = mission.merge.base
    mission.merge = None
    mission.groups = list(fact.groups)
    mission.red_trees = [*mission.red_trees, fact.tree][-TREES_KEPT:]


APPLY = for_missions(
    {
        VerificationStarted: _verifying,
        CriterionChecked: _checked,
        VerificationEnded: _verified,
        FlakeNoted: _flake,
        MergeStarted: _merging,
        RepoMerged: _merged,
        RepoConflicted: _conflicted,
        RepoMoved: _moved,
        BatchRefused: _batch_refused,
    }
)
