"""Whether a check that passed could have failed: what has to be shown again, and what was lost. Pure.

Before the work a check is run where it has to fail: beside a failing test that its runner has to report (*canary*),
with an expected value replaced (*flip*), with files of expected values that hold nothing (*data*), and with a product
that does not work (*hollow*). Before it counts as passed it is run there again, on the tree that it is to count for.
What it showed before and no longer shows was taken from it by the changes since. A check that never showed anything
counts by its exit status, and is said to be unproven.

Where it is not proven again: on a tree whose files are all of trees that were proven. A merge of proven trees is one,
unless both sides changed one file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.facts.proof import Ability
from holdfast.kinds.mission.fold.state import CheckAbility, MissionState

UNPROVEN = "not proven able to fail"

LOST = {
    "canary": "its runner does not report a failing test that was put beside its tests",
    "flip": "it passes with an expected value replaced by another",
    "data": "it passes although the files that hold what is expected hold nothing",
    "hollow": "it passes although the product does not work",
    "apart": "it passes only beside test files that were added",
}
"""What it means that a check does not fail on a kind of probe any more."""

SOMETIMES = "it passes only sometimes"

_KINDS = ("canary", "flip", "data", "hollow")


def kind_of(probe: str) -> str:
    """The ability that a probe is about: a product that is gone does not work either."""
    return "hollow" if probe == "empty" else probe


def wanted(ability: CheckAbility) -> frozenset[str]:
    """The kinds that are tried again: those seen at the base, and those that a failing base could not show.

    A wrong expectation is a sharper probe than a product that does not work; where the base shows neither, it is
    enough.
    """
    kinds = {kind for kind in _KINDS if _ability(ability, kind) in ("yes", "base")}
    return frozenset(kinds - {"hollow"} if ability.hollow == "base" and "flip" in kinds else kinds)


def lost(ability: CheckAbility, shown: Collection[str]) -> frozenset[str]:
    """The kinds that it was seen to fail on before the work and does not fail on now.

    With a runner, a check that failed on the base has to fail on all of them. Another command may have failed there
    for a reason that no probe brings back.
    """
    sure = ("yes", "base") if ability.canary == "yes" else ("yes",)
    return frozenset(kind for kind in wanted(ability) if _ability(ability, kind) in sure and kind not in shown)


def _ability(ability: CheckAbility, kind: str) -> Ability:
    return {"canary": ability.canary, "flip": ability.flip, "data": ability.data, "hollow": ability.hollow}[kind]


def in_words(kinds: Iterable[str]) -> str:
    """What was lost, for whoever has to set it right."""
    return "; ".join(LOST[kind] for kind in kinds)


def unmeasured(mission: MissionState) -> tuple[str, ...]:
    """Criteria with a check of which nobody knows yet whether it can fail."""
    return tuple(
        name
        for name, criterion in mission.contract.criteria().items()
        if criterion.check is not None and name not in mission.abilities
    )


def is_proven(mission: MissionState, name: str) -> bool:
    """Whether the check of a criterion was shown to be able to fail when it counted last."""
    proof = mission.proofs.get(name)
    return proof is not None and bool(proof.shown)


def is_of(mission: MissionState, name: str, tree: str) -> bool:
    """Whether the check of a criterion was last proven on this very tree."""
    proof = mission.proofs.get(name)
    return proof is not None and proof.tree == tree


def evidence(mission: MissionState, name: str) -> str:
    """What is to be added to the evidence of a criterion that passes: nothing when its check is proven."""
    criterion = mission.contract.criteria().get(name)
    by_check = criterion is not None and criterion.check is not None
    return UNPROVEN if by_check and not is_proven(mission, name) else ""


def never_green(mission: MissionState, names: Iterable[str]) -> tuple[str, ...]:
    """Those criteria that never passed, on any tree."""
    return tuple(name for name in names if name not in mission.greened and name not in mission.passed)


def fresh(differing: Iterable[Iterable[str]]) -> frozenset[str]:
    """The files of a tree that are in no sound tree; `differing` has what differs from each of those."""
    sets = [frozenset(each) for each in differing]
    return frozenset.intersection(*sets) if sets else frozenset()


def paths_of(mission: MissionState) -> Mapping[str, tuple[str, ...]]:
    """The globs of what each criterion is about."""
    return {criterion.id: item.paths for item in mission.contract.items for criterion in item.criteria}
