"""The main line: what is merged next, and what a merged tree has to pass (S23, S26). Pure."""

from __future__ import annotations

from holdfast.facts.repo import BatchRefused
from holdfast.facts.task import TaskRefused
from holdfast.kinds.mission.check import metrics, proofs
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, MissionAction, Verify
from holdfast.kinds.mission.conductor.green import needed, stands, unknown, unmet_unknown
from holdfast.kinds.mission.conductor.queue import after_red, next_batch
from holdfast.kinds.mission.conductor.tasks import BROKEN_MAX, verdict_note
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
