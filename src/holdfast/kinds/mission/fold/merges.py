"""Fold of verifications, proofs, batches, and the main branch."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import (
    CriterionChecked,
    FlakeNoted,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.task import (
    BatchRefused,
    CheckProbed,
    CheckProved,
    MergeStarted,
    RepoConflicted,
    RepoMerged,
    RepoMoved,
)
from holdfast.kinds.mission.fold.state import (
    LAST,
    OVER,
    CheckAbility,
    MissionState,
    OpenMerge,
    OpenVerification,
    Proof,
    Verdict,
    note_failure,
    of_mission,
    only_looks,
    turn,
)
from holdfast.session.state import Apply, State

NOWHERE = "nowhere"
"""Value of `astray` for a main branch that another process deleted."""

TREES_KEPT = 16
"""Number of refused merges whose verdicts are kept: the rest of a red batch is often the same tree again."""

HANDS_KEPT = 4
"""Most concurrent runs of a verification."""

PROVEN_KEPT = 200
"""Most trees kept on which a check was proven able to fail."""

VERDICTS_KEPT = 2_000
"""Most verdicts kept of trees that are no longer in use."""


def _verifying(state: State, fact: VerificationStarted, event: Event) -> None:
    mission = of_mission(state)
    known = mission.verifications.get(fact.effect)
    hands = known.hands if known is not None and known.verification_id == fact.verification_id else ()
    hands = (*hands, *((fact.hands,) if fact.hands is not None else ()))[-HANDS_KEPT:]
    mission.verifications[fact.effect] = OpenVerification(
        event.seq, fact.verification_id, fact.effect, fact.tree, fact.criteria, hands, fact.key
    )


def _checked(state: State, fact: CriterionChecked, event: Event) -> None:
    mission = of_mission(state)
    verdicts = mission.verdicts.setdefault(fact.tree, {})
    effects = [each.effect for each in mission.verifications.values() if each.verification_id == fact.verification_id]
    looks = any(map(only_looks, effects))
    for name in fact.criteria:
        verdicts[name] = Verdict(event.seq, fact.outcome, fact.key, fact.note)
        if fact.outcome == "pass" and not looks:
            mission.greened.setdefault(name, event.seq)
        if fact.outcome == "pass" and fact.tree == mission.main_tree:
            mission.passed.setdefault(name, event.seq)
        if fact.outcome != "pass" and any(effect.startswith(LAST) for effect in effects):
            mission.passed.pop(name, None)
        if fact.value is not None:
            mission.measured.setdefault(fact.tree, {})[name] = fact.value
    if fact.tree == mission.main_tree:
        _on_main(mission, event)


def _on_main(mission: MissionState, event: Event) -> None:
    """Add the values of metrics on the main branch to their curves."""
    for name, value in mission.measured.get(mission.main_tree, {}).items():
        known = mission.curves.setdefault(name, [])
        if not known or known[-1][1] != value:
            known.append((event.seq, value))


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


def _probed(state: State, fact: CheckProbed, event: Event) -> None:
    of_mission(state).abilities[fact.criterion] = CheckAbility(
        event.seq, fact.tree, fact.digest, fact.canary, fact.flip, fact.data, fact.hollow, fact.reports
    )


def _proved(state: State, fact: CheckProved, event: Event) -> None:
    mission = of_mission(state)
    known = mission.proofs.get(fact.criterion)
    if known is not None and known.tree == mission.main_tree != fact.tree:
        pass  # a proof on the main branch remains, whatever happens to a task
    elif fact.lost:
        mission.proofs.pop(fact.criterion, None)
    else:
        mission.proofs[fact.criterion] = Proof(event.seq, fact.tree, fact.shown)
    if fact.shown and not fact.lost and fact.tree not in mission.proven_trees:
        mission.proven_trees = [*mission.proven_trees, fact.tree][-PROVEN_KEPT:]


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
    _keep_what_was_checked(mission, fact)
    for name in fact.passed:
        mission.passed.setdefault(name, event.seq)
    for name in fact.touched:
        mission.passed.pop(name, None)
        mission.rubric.pop(name, None)
        mission.stale[name] = event.seq
    known = mission.contract.criteria()
    for name in fact.tasks:
        task = mission.tasks[name]
        for criterion in task.task.criteria:
            if criterion in mission.rubric and criterion in known and known[criterion].check is None:
                mission.passed.setdefault(criterion, event.seq)
                mission.stale.pop(criterion, None)
        turn(task, "merged", event)
    _on_main(mission, event)
    _forget_trees(mission)


def _keep_what_was_checked(mission: MissionState, fact: RepoMerged) -> None:
    """Make criteria unknown that passed on the former tree while the branch was moved: this tree was not checked for
    them.
    """
    for name, criterion in mission.contract.criteria().items():
        verdict = mission.verdict(fact.tree, name)
        green = name in fact.passed or (verdict is not None and verdict.outcome == "pass")
        if criterion.check is not None and not green:
            mission.passed.pop(name, None)


def _forget_trees(mission: MissionState) -> None:
    """Drop verdicts of unused trees beyond the limit; the log keeps them.

    Trees with few verdicts are dropped last: another worker may submit the same tree again.
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
    mission.measured = {tree: known for tree, known in mission.measured.items() if tree in wanted}


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


FOLD: Mapping[type[Fact], Apply] = {
    VerificationStarted: _verifying,
    CriterionChecked: _checked,
    VerificationEnded: _verified,
    FlakeNoted: _flake,
    CheckProbed: _probed,
    CheckProved: _proved,
    MergeStarted: _merging,
    RepoMerged: _merged,
    RepoConflicted: _conflicted,
    RepoMoved: _moved,
    BatchRefused: _batch_refused,
}
