"""Metrics: which values are better, what they let through, and when a person is asked."""

from __future__ import annotations

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, Item, Metric, MissionPolicy, Task
from holdfast.kinds import KINDS
from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.conductor import ending, merges
from holdfast.kinds.mission.conductor.actions import EscalateMission
from holdfast.kinds.mission.contract.contents import metric_holds
from holdfast.kinds.mission.fold.state import MissionState, TaskState, Verdict
from holdfast.session.actions import Record
from holdfast.session.fold import empty


def mission(metric: Metric, *curve: float, **measured: float) -> MissionState:
    """A mission with that metric, its values on the main branch so far, and values on trees."""
    criterion = Criterion("fast", "it is fast", Check("bench", metric=metric))
    contract = Contract("g", (Item("i", "an item", criteria=(criterion,), paths=("src/**",)),))
    made = MissionState(contract, MissionPolicy(plateau=2), opened_seq=1, main="c", main_tree="main", planned=True)
    made.curves["fast"] = [(10 + number, value) for number, value in enumerate(curve)]
    for tree, value in measured.items():
        outcome = "pass" if metric_holds(metric, value) else "fail"
        made.measured[tree] = {"fast": value}
        made.verdicts[tree] = {"fast": Verdict(5, outcome)}  # type: ignore[arg-type]
    made.tasks["t"] = TaskState(Task("t", "a task", ("fast",)), "working")
    made.tasks["u"] = TaskState(Task("u", "another", ()), "working")
    return made


@pytest.mark.parametrize(
    ("metric", "curve", "value", "better", "kept"),
    [
        (Metric(9, 0.5), (3, 5), 5.6, True, True),
        (Metric(9, 0.5), (3, 5), 5.5, False, True),
        (Metric(9, 0.5), (3, 5), 4.5, False, True),
        (Metric(9, 0.5), (3, 5), 4.4, False, False),
        (Metric(9, 0.5), (5, 4.6), 4.4, False, False),
        (Metric(1, 0.5, "at_most"), (9, 5), 4.4, True, True),
        (Metric(1, 0.5, "at_most"), (9, 5), 5.6, False, False),
        (Metric(5, 0.0, "equal"), (9, 3), 6, True, True),
        (Metric(5, 0.0, "equal"), (9, 3), 7.5, False, False),
        (Metric(9), (), 1, True, True),
    ],
)
def test_a_step_is_better_by_more_than_the_tolerance(
    metric: Metric, curve: tuple[float, ...], value: float, better: bool, kept: bool
) -> None:
    state = mission(metric, *curve, tree=value)
    assert metrics.improves(state, "tree", "fast") == better
    assert metrics.keeps(state, "tree", "fast") == kept
    assert merges.stands(state, "tree", "fast", ("t",)) == better, "work on the metric has to make it better"
    assert merges.stands(state, "tree", "fast", ("u",)) == kept, "other work must not make it worse"


def test_what_reached_the_target_has_to_stay_there_and_no_more() -> None:
    state = mission(Metric(9), 5, 12, above=9.5, below=8)
    state.passed["fast"] = 12
    assert merges.stands(state, "above", "fast", ("u",))
    assert not merges.stands(state, "below", "fast", ("u",))
    assert merges.needed(state, ("u",)) == ("fast",)


def test_a_metric_without_a_number_is_no_step() -> None:
    state = mission(Metric(9), 5)
    state.verdicts["tree"] = {"fast": Verdict(5, "error")}
    assert not merges.stands(state, "tree", "fast", ("t",))
    assert not merges.stands(state, "tree", "fast", ("u",))
    assert "no number was printed" in metrics.words(state, "tree", "fast")


@pytest.mark.parametrize(
    ("metric", "values", "middle"),
    [
        (Metric(9), (3.0, 1.0, 2.0), 2.0),
        (Metric(9), (3.0, 1.0), 1.0),
        (Metric(9, 0.0, "at_most"), (3.0, 1.0), 3.0),
        (Metric(9), (None, 4.0, 2.0), 2.0),
        (Metric(9), (None, None, 2.0), None),
        (Metric(9), (7.0,), 7.0),
    ],
)
def test_one_lucky_run_is_not_the_median(
    metric: Metric, values: tuple[float | None, ...], middle: float | None
) -> None:
    assert values[metrics.median(metric, values)] == middle


def test_a_task_follows_until_a_plateau_or_the_cap_asks_a_person() -> None:
    state, session = mission(Metric(9, 0.5), 3, 5), empty("ses_1", KINDS)
    state.tasks["t"].status = "merged"
    action = ending.step(session, state, 0, frozenset())
    assert isinstance(action, Record)
    (planned,) = action.facts
    (task,) = planned.tasks  # type: ignore[attr-defined]
    assert (task.criteria, task.scope, planned.round) == (("fast",), ("src/**",), state.round)  # type: ignore[attr-defined]
    assert "3 → 5, target at least 9" in task.description
    for number in range(2):
        assert isinstance(ending.step(session, state, 0, frozenset()), Record)
        name = f"s{number}"
        state.tasks[name] = TaskState(Task(name, "a step", ("fast",)), "failed", since_seq=20 + number)
    found = ending.step(session, state, 0, frozenset())
    assert isinstance(found, EscalateMission)
    assert found.why == "fast did not improve in 2 tasks: 3 → 5, target at least 9"
    state.curves["fast"].append((30, 6.0))
    assert isinstance(ending.step(session, state, 0, frozenset()), Record), "it improved since"
    for number in range(metrics.TASKS_MAX):
        state.tasks[f"m{number}"] = TaskState(Task(f"m{number}", "a step", ("fast",)), "merged")
    assert isinstance(ending.step(session, state, 0, frozenset()), EscalateMission)


def test_a_long_curve_is_cut() -> None:
    state = mission(Metric(99), *range(40))
    assert metrics.curve(state, "fast").startswith("0 → … → 29 → ")
    assert metrics.curve(state, "none") == ""
