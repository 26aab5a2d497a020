"""Flaky checks: different outcomes on the same tree. Pure.

A check that failed is run again, alone, on clean checkouts of the same tree. The rules for its verdict:

- It fails every time: red. If it is known to be flaky, or sometimes fails on the main branch too, it gets more runs, so
  that chance alone does not make it red.
- It also passes, and is known to be flaky or sometimes fails on the main branch: green, by its passing run.
- It also passes, and failed only once in all its runs: green; chance explains that.
- It also passes, and never failed on the main branch in as many runs: red if chance hardly explains the difference,
  since then the branch made it unreliable; else green, by its passing run.
- It also passes, and never passed on a main branch: green if at least half of its runs passed.

So a verdict is green only with a passing run on that same tree.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.mission import Contract, ContractAmended
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.session.state import State

KIND = "flake"

PROPOSE_AFTER = 5
"""Flaky results of a criterion before a user is asked about it."""

CHANCE = 0.02
"""Probability of a difference by chance below which a branch is blamed for making a check unreliable."""


def known(mission: MissionState, name: str) -> bool:
    """Return True if a criterion was flaky before."""
    return mission.flakes.get(name, 0) > 0


def most_runs(reruns: int) -> int:
    """Return the most runs of a check that both passed and failed, to measure its unreliability."""
    return 2 * reruns + 1


def patience(reruns: int) -> int:
    """Return the number of runs of a flaky check before its failures count."""
    return 3 * reruns


def introduced(failures: int, runs: int, main_runs: int) -> bool:
    """Return True if a branch made a check unreliable that never failed in `main_runs` runs on the main branch."""
    return math.comb(runs, failures) / math.comb(runs + main_runs, failures) < CHANCE


def item_of(name: str) -> str:
    """Return the call id that links an inbox item to its criterion."""
    return f"{KIND}:{name}"


def to_propose(state: State) -> list[str]:
    """Return criteria that a user should decide about: flaky often enough, and not asked about yet."""
    mission = of_mission(state)
    asked = {ask.call_id for ask in state.asks.values() if ask.kind == KIND}
    criteria = mission.contract.criteria()
    return [
        name
        for name, times in mission.flakes.items()
        if times >= PROPOSE_AFTER and name in criteria and item_of(name) not in asked
    ]


def quarantined(state: State) -> tuple[Fact, ...]:
    """Return amendments that remove criteria whose quarantine a user approved and that are still in the contract."""
    mission = of_mission(state)
    criteria = mission.contract.criteria()
    for ask in state.asks.values():
        name = ask.call_id.removeprefix(f"{KIND}:")
        if ask.kind == KIND and ask.verdict == "approve" and not ask.expired and name in criteria:
            contract = without(mission.contract, name)
            reason = f"its check is flaky: it failed now and then {mission.flakes.get(name, 0)} times"
            return (
                ContractAmended(
                    contract=contract,
                    digest=contract_digest(contract),
                    author="a person",
                    reason=reason,
                    weakened=(name,),
                    item_id=ask.item_id,
                ),
            )
    return ()


def without(contract: Contract, name: str) -> Contract:
    """Return the contract without a criterion. Its item stays."""
    items = tuple(
        msgspec.structs.replace(item, criteria=tuple(each for each in item.criteria if each.id != name))
        for item in contract.items
    )
    return msgspec.structs.replace(contract, items=items)
