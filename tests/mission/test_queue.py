"""The queue, what is green, which checks run together, the rules for flaky ones: pure, from state to what follows."""

from __future__ import annotations

import random
from math import comb

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, Item, Metric, MissionPolicy, Task
from holdfast.kinds.mission.check import checking, flakes
from holdfast.kinds.mission.conductor.merges import (
    after_red,
    batch_size,
    needed,
    next_batch,
    stands,
    unknown,
    unmet_unknown,
)
from holdfast.kinds.mission.fold.state import MissionState, OpenMerge, TaskState, Verdict


def mission(count: int = 8, **policy: object) -> MissionState:
    """So many queued tasks with a criterion each, a guard, and a rubric line."""
    criteria = [Criterion(f"c{n}", "it works", Check("run", (f"t{n}",))) for n in range(count)]
    extra = (Criterion("guard", "still", Check("suite"), guard=True), Criterion("tone", "friendly"))
    contract = Contract("g", (Item("i", "all", criteria=(*criteria, *extra)),))
    state = MissionState(contract, MissionPolicy(**policy), main="m0", main_tree="T0")  # type: ignore[arg-type]
    for n in range(count):
        names = (f"c{n}", "tone") if n == 0 else (f"c{n}",)
        state.tasks[f"t{n}"] = TaskState(Task(f"t{n}", "work", names), "queued", commit=f"k{n}", tree=f"tree{n}")
    return state


def merge(*tasks: str, tree: str = "M") -> OpenMerge:
    return OpenMerge(1, 1, "refs/heads/holdfast/m/main", "m0", tasks, "mc", tree)


# --- batches -------------------------------------------------------------------------------------


def test_parts_of_a_red_batch_come_first() -> None:
    state = mission()
    state.groups = [("t5", "t6"), ("t7",)]
    assert next_batch(state) == ("t5", "t6")
    state.tasks["t5"].status = "merged"
    assert next_batch(state) == ("t6",)
    state.tasks["t6"].status = "working"
    assert next_batch(state) == ("t7",)


def test_only_queued_tasks_are_merged_in_the_order_of_the_plan() -> None:
    state = mission()
    state.tasks["t1"].status = "working"
    assert next_batch(state) == ("t0", "t2", "t3", "t4", "t5", "t6", "t7")
    for task in state.tasks.values():
        task.status = "merged"
    assert next_batch(state) == ()


def test_batches_are_smaller_where_branches_are_worse() -> None:
    state = mission(60, batch=8)
    assert batch_size(state) == 8
    for n in range(20):
        state.tasks[f"t{n}"].status = "merged"
        state.tasks[f"t{n}"].refusals["regression"] = 1
    assert batch_size(state) == 2
    for n in range(20):
        state.tasks[f"t{n}"].refusals.clear()
    assert batch_size(state) == 8


def test_the_gates() -> None:
    assert len(next_batch(mission(40, gate="each"))) == 1
    assert len(next_batch(mission(40, gate="batch", batch=5))) == 5
    assert len(next_batch(mission(40, gate="green_branch", batch=5))) == 40


def test_one_alone_that_is_red_is_at_fault() -> None:
    refused = after_red(mission(), merge("t3"), ("guard",))
    assert refused.culprits == ("t3",)
    assert refused.groups == ()


def test_a_red_batch_is_halved() -> None:
    refused = after_red(mission(), merge("t0", "t1", "t2", "t3", "t4"), ("guard",))
    assert refused.culprits == ()
    assert refused.groups == (("t0", "t1", "t2"), ("t3", "t4"))


def test_whose_criterion_fails_is_merged_after_the_others() -> None:
    refused = after_red(mission(), merge("t0", "t1", "t2", "t3"), ("c2", "guard"))
    assert refused.groups == (("t0", "t1", "t3"), ("t2",))
    everyone = after_red(mission(), merge("t0", "t1"), ("c0", "c1"))
    assert everyone.groups == (("t0",), ("t1",))


def test_a_red_base_changes_nothing_about_the_parts() -> None:
    state = mission()
    state.groups = [("t1",), ("t2",)]
    assert after_red(state, merge(), ("guard",)).groups == (("t1",), ("t2",))


@pytest.mark.parametrize("seed", range(12))
def test_few_checks_find_the_bad_ones(seed: int) -> None:
    """The rules on their own, with branches that are good or bad by themselves: about six checks for ten merges."""
    chance = random.Random(seed)
    bad = {f"t{n}" for n in chance.sample(range(64), 6)}
    state = mission(64, batch=8)
    seen: dict[frozenset[str], bool] = {}
    merged: frozenset[str] = frozenset()
    checks = 0
    while batch := next_batch(state):
        if state.groups and set(state.groups[0]) >= set(batch):
            state.groups.pop(0)
        tree = merged | set(batch)
        if tree not in seen:
            checks += 1
            seen[tree] = not tree & bad
        if seen[tree]:
            merged = tree
            for name in batch:
                state.tasks[name].status = "merged"
            continue
        refused = after_red(state, merge(*batch), ("guard",))
        state.groups = list(refused.groups)
        for name in refused.culprits:
            assert name in bad
            state.tasks[name].status = "working"
            state.tasks[name].refusals["regression"] = 1
    assert merged == {f"t{n}" for n in range(64)} - bad
    assert checks / len(merged) <= 0.6


# --- green ---------------------------------------------------------------------------------------


def is_green(state: MissionState, tree: str, tasks: tuple[str, ...]) -> bool:
    return all(stands(state, tree, name, tasks) for name in needed(state, tasks))


def test_what_passed_must_go_on_to_pass() -> None:
    state = mission(4)
    state.passed = {"c3": 1, "tone": 1}
    assert needed(state, ("t0",)) == ("c0", "c3", "guard")
    state.verdicts["M"] = {name: Verdict(1, "pass") for name in ("c0", "c3")}
    assert not is_green(state, "M", ("t0",))
    state.verdicts["M"]["guard"] = Verdict(2, "pass")
    assert is_green(state, "M", ("t0",))
    state.verdicts["M"]["c3"] = Verdict(3, "timeout")
    assert not is_green(state, "M", ("t0",))


def test_a_guard_that_never_held_accuses_nobody() -> None:
    state = mission(2)
    assert unknown(state) == ("guard",)
    state.verdicts["T0"] = {"guard": Verdict(1, "fail")}
    assert unknown(state) == ()
    assert needed(state, ("t0",)) == ("c0",)
    assert unmet_unknown(state) == ("c0", "c1")


# --- runs ----------------------------------------------------------------------------------------


def checks(**given: Check) -> dict[str, Check]:
    return given


def test_checks_of_one_command_are_one_run() -> None:
    given = checks(
        a=Check("pytest -q", ("x::1",), timeout_s=10),
        b=Check("pytest -q", ("x::2", "x::1"), timeout_s=20),
        whole=Check("pytest -q"),
        size=Check("wc -c", metric=Metric(10, direction="at_most")),
        same=Check("pytest -q"),
    )
    runs = checking.groups(given)
    assert [(run.names, run.command) for run in runs] == [
        (("a", "b"), "pytest -q x::1 x::2"),
        (("whole", "same"), "pytest -q"),
        (("size",), "wc -c"),
    ]
    assert [run.divisible for run in runs] == [True, False, False]
    assert runs[0].timeout_s == 30


def test_flaky_checks_are_apart() -> None:
    given = {name: Check("t", (name,)) for name in "abcd"}
    assert [run.names for run in checking.groups(given, ("b", "d"))] == [("a", "c"), ("b", "d")]


def test_a_command_that_no_system_takes_is_two() -> None:
    given = {f"c{n}": Check("t", ("x" * 1000 + str(n),)) for n in range(100)}
    runs = checking.groups(given)
    assert len(runs) == 2
    assert all(len(run.command) <= checking.COMMAND_MAX for run in runs)
    assert [name for run in runs for name in run.names] == list(given)


def test_output_is_a_hint_about_order_alone() -> None:
    (group,) = checking.groups({f"c{n}": Check("t", (f"x::t{n}",)) for n in range(12)})
    parts = checking.divided(group, "x::t1 PASSED\nFAILED x::t1 - no\nFAILED x::t10 - no\n")
    assert [part.names for part in parts[1:]] == [("c1",), ("c10",)]
    assert len(parts[0].names) == 10
    assert [len(part.names) for part in checking.divided(group, "it is all fine")] == [6, 6]
    liar = "\n".join(f"FAILED x::t{n}" for n in range(12))
    assert [len(part.names) for part in checking.divided(group, liar)] == [6, 6]


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({"exit_code": 0}, "pass"),
        ({"exit_code": 1}, "fail"),
        ({"exit_code": 0, "timed_out": True}, "timeout"),
        ({"exit_code": None}, "error"),
        ({"exit_code": 127}, "error"),
        ({"exit_code": 126}, "error"),
        ({"exit_code": 0, "cut": True}, "error"),
    ],
)
def test_how_a_run_ended(given: dict[str, object], outcome: str) -> None:
    assert checking.read(Check("t"), output="1 passed", **given).outcome == outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "exit_code", "outcome", "value"),
    [
        ("coverage\n81.5 %\n", 0, "pass", 81.5),
        ("79.2\n", 0, "pass", 79.2),
        ("78.9\n", 0, "fail", 78.9),
        ("99\n", 1, "fail", None),
        ("nothing\n", 0, "error", None),
        ("", 0, "error", None),
    ],
)
def test_a_metric(said: str, exit_code: int, outcome: str, value: float | None) -> None:
    check = Check("cov", metric=Metric(80, 1, "at_least"))
    assert checking.read(check, exit_code, said) == (outcome, value)


def test_keys_differ_by_all_that_they_hold_under() -> None:
    base = ("tree", "contract", "environment", "laid")
    keys = {checking.key(*base)}
    for place in range(4):
        changed = list(base)
        changed[place] = "other"
        keys.add(checking.key(*changed))
    assert len(keys) == 5


# --- flakes --------------------------------------------------------------------------------------


def test_chance_or_a_branch() -> None:
    assert not flakes.introduced(1, 7, 7)
    assert not flakes.introduced(4, 7, 7)
    assert flakes.introduced(5, 7, 7)
    assert comb(7, 5) / comb(14, 5) < flakes.CHANCE


def test_a_criterion_leaves_and_its_item_stays() -> None:
    contract = mission(2).contract
    left = flakes.without(contract, "c1")
    assert set(left.criteria()) == {"c0", "guard", "tone"}
    assert len(left.items) == 1
