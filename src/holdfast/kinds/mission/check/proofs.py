"""Proofs that a check can fail: which to repeat, and which were lost. Pure.

Before the work, a check runs where it must fail: beside a failing test that its runner must report (*canary*), with an
expected value replaced (*flip*), with changed files of expected values (*data*), and with a broken product (*hollow*).
Before it counts as passed, these runs are repeated on the tree in question. If an ability shown before is missing now,
the changes since then removed it. A check that never showed any counts by its exit status and is reported as unproven.

No proof is repeated on a tree whose files all come from proven trees. A merge of proven trees is one, unless both sides
changed the same file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.facts.task import Ability
from holdfast.kinds.mission.fold.state import CheckAbility, MissionState

UNPROVEN = "not proven able to fail"

LOST = {
    "canary": "its runner does not report a failing test beside its tests, or these fail when restated",
    "flip": "it passes with another value than the expected one, or fails with the same one restated",
    "data": "it passes although the files of expected values are changed",
    "hollow": "it passes although the product does not work",
    "apart": "it passes only beside test files that were added",
}
"""Description of a check that no longer fails on a kind of probe, by kind."""

SOMETIMES = "it passes only sometimes"

_KINDS = ("canary", "flip", "data", "hollow")


def kind_of(probe: str) -> str:
    """Return the ability that a probe tests: a removed product is one that does not work."""
    return "hollow" if probe == "empty" else probe


def wanted(ability: CheckAbility) -> frozenset[str]:
    """Return the kinds to repeat: those shown at the base, and those that a failing base could not show.

    A wrong expectation is a sharper probe than a broken product; if the base shows neither, the former is enough.
    """
    kinds = {kind for kind in _KINDS if _ability(ability, kind) in ("yes", "base")}
    return frozenset(kinds - {"hollow"} if ability.hollow == "base" and "flip" in kinds else kinds)


def lost(ability: CheckAbility, shown: Collection[str]) -> frozenset[str]:
    """Return the kinds on which the check failed before the work and no longer fails.

    A test runner that failed on the base must fail on all of them. Another command may have failed there for a reason
    that no probe reproduces.
    """
    sure = ("yes", "base") if ability.canary == "yes" else ("yes",)
    return frozenset(kind for kind in wanted(ability) if _ability(ability, kind) in sure and kind not in shown)


def _ability(ability: CheckAbility, kind: str) -> Ability:
    return {"canary": ability.canary, "flip": ability.flip, "data": ability.data, "hollow": ability.hollow}[kind]


def in_words(kinds: Iterable[str]) -> str:
    """Describe the lost kinds for the worker who must restore them."""
    return "; ".join(LOST[kind] for kind in kinds)


def unmeasured(mission: MissionState) -> tuple[str, ...]:
    """Return criteria with a check whose ability to fail is not measured yet."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None and name not in mission.abilities
    )


def is_proven(mission: MissionState, name: str) -> bool:
    """Return True if the check of a criterion was proven able to fail when it last counted."""
    proof = mission.proofs.get(name)
    return proof is not None and bool(proof.shown)


def is_of(mission: MissionState, name: str, tree: str) -> bool:
    """Return True if the check of a criterion was last proven on this exact tree."""
    proof = mission.proofs.get(name)
    return proof is not None and proof.tree == tree


def evidence(mission: MissionState, name: str) -> str:
    """Return a note for the evidence of a passing criterion; empty if its check is proven."""
    criterion = mission.contract.criteria().get(name)
    by_check = criterion is not None and criterion.check is not None
    return UNPROVEN if by_check and not is_proven(mission, name) else ""


def never_green(mission: MissionState, names: Iterable[str]) -> tuple[str, ...]:
    """Return criteria that never passed on any tree."""
    return tuple(name for name in names if name not in mission.greened and name not in mission.passed)


def fresh(differing: Iterable[Iterable[str]]) -> frozenset[str]:
    """Return the files of a tree that are in no proven tree; `differing` has the files that differ from each."""
    sets = [frozenset(each) for each in differing]
    return frozenset.intersection(*sets) if sets else frozenset()


def paths_of(mission: MissionState) -> Mapping[str, tuple[str, ...]]:
    """Return the globs of each criterion's files."""
    return {criterion.id: item.paths for item in mission.contract.items for criterion in item.criteria}
