"""Checks that say different things about the same tree. Pure.

A check that failed is run again, alone, on clean checkouts of the same tree. The rules for its verdict:

- It fails every time: red. One that is known to be flaky, or that failed now and then on the main line too, is given
  more runs, so that chance alone does not make it red.
- It passes as well, and is known to be flaky, or fails now and then on the main line too: green, by its passing run.
- It passes as well, and failed once only in all its runs: green; chance explains that.
- It passes as well, and never failed on the main line in as many runs: red when chance hardly explains the difference,
  since then the branch is what made it unreliable; else green, by its passing run.
- It passes as well, and there is no main line that it passed on: green when at least half of its runs passed.

So a verdict is green only with a passing run on that very tree.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.contract import Contract, ContractAmended
from holdfast.kinds.mission.contract.contents import contract_digest
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.session.state import State

KIND = "flake"

PROPOSE_AFTER = 5
"""A person is asked about a criterion that was flaky so often."""

CHANCE = 0.02
"""A branch made a check unreliable when chance alone would explain the difference less often than this."""


def known(mission: MissionState, name: str) -> bool:
    """Whether a criterion was flaky before."""
    return mission.flakes.get(name, 0) > 0


def most_runs(reruns: int) -> int:
    """So often a check that passed and failed is run at most to see how unreliable it is."""
    return 2 * reruns + 1


def patience(reruns: int) -> int:
    """So often a check that is known to be flaky is run before its failures count."""
    return 3 * reruns


def introduced(failures: int, runs: int, main_runs: int) -> bool:
    """Whether a branch made a check unreliable that never failed in `main_runs` runs on the main line."""
    return math.comb(runs, failures) / math.comb(runs + main_runs, failures) < CHANCE


def item_of(name: str) -> str:
    """What links an item of the inbox to the criterion that it is about."""
    return f"{KIND}:{name}"


def to_propose(state: State) -> list[str]:
    """Criteria that a person should decide about: flaky often enough, and nobody was asked."""
    mission = of_mission(state)
    asked = {ask.call_id for ask in state.asks.values() if ask.kind == KIND}
    criteria = mission.contract.criteria()
    return [
        name
        for name, times in mission.flakes.items()
        if times >= PROPOSE_AFTER and name in criteria and item_of(name) not in asked
    ]


def quarantined(state: State) -> tuple[Fact, ...]:
    """The facts by which criteria leave the contract whose quarantine a person approved; none for those that left."""
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
    """The contract without a criterion. The item that it was of stays."""
    items = tuple(
        msgspec.structs.replace(item, criteria=tuple(each for each in item.criteria if each.id != name))
        for item in contract.items
    )
    return msgspec.structs.replace(contract, items=items)
