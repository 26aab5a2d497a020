"""Checks that pass and fail on one tree: how often they did, and the question whether they are to count any longer."""

from __future__ import annotations

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.kinds.mission.acts.running import Run
from holdfast.kinds.mission.check import flakes
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.session.context.render import action_digest


class Tally:
    """Runs of one check on one tree."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    @property
    def passes(self) -> int:
        return sum(run.passed for run in self.runs)

    @property
    def failures(self) -> int:
        return len(self.runs) - self.passes


async def propose(shift: Shift) -> None:
    """Ask a person about criteria that were flaky often: only they can take one out of the contract."""
    mission = of_mission(shift.state)
    for name in flakes.to_propose(shift.state):
        times = mission.flakes[name]
        text = mission.contract.criteria()[name].text
        item = new_item(
            shift,
            kind=flakes.KIND,
            title=f"is {name} to count any longer?",
            action=(
                f"The check of {name} ({text}) failed now and then on trees where it passed as well, {times} times.\n\n"
                "Approve: it is taken out of the contract. Deny: it stays, and is run again when it fails."
            ),
            call_id=flakes.item_of(name),
            action_digest=action_digest(flakes.KIND, {"criterion": name}),
            why=f"{times} verifications found it flaky",
            default=None,
        )
        await shift.fact(item)
