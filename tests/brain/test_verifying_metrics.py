"""A metric's verdict: the median of several runs, each in hands of its own."""

from __future__ import annotations

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, CriterionChecked, Item, Metric, MissionPolicy
from holdfast.hands.fake.calls import Files
from holdfast.kinds.mission.check import metrics
from tests.brain.merge_stage import MergeStage, checked, state_of, task

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("printed", "runs", "outcome", "value"),
    [
        (["9", "1", "2"], 3, "fail", 2.0),
        (["1", "9", "9"], 3, "pass", 9.0),
        (["9"], 1, "pass", 9.0),
        (["no number", "9", "9"], 3, "pass", 9.0),
        (["9", "no number", "none here"], 3, "error", None),
    ],
)
async def test_a_lucky_run_moves_nothing(printed: list[str], runs: int, outcome: str, value: float | None) -> None:
    left = list(printed)

    def bench(command: str, files: Files) -> tuple[int, str]:
        return 0, (left.pop(0) if left else "0") + "\n"

    criterion = Criterion("fast", "it is fast", Check("bench", metric=Metric(8)))
    policy = MissionPolicy(hooks=False, judge="off", confirm_runs=runs)
    stage = MergeStage(
        Contract("g", (Item("i", "i", criteria=(criterion,)),)), {"a": b"1"}, policy=policy, checks=bench
    )
    shift = await stage.begin(task("t", "fast"))
    await checked(stage, shift, await stage.branch({"a": b"2"}))
    (check,) = await stage.facts(CriterionChecked)
    assert (check.outcome, check.value, check.runs, left) == (outcome, value, runs, [])
    assert metrics.values(state_of(shift), "fast") == (), "that is no value of the main branch"
