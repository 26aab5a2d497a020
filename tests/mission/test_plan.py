"""Plans: what can be worked by, what is wrong with the others, what can begin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy, Task
from holdfast.globs import matches
from holdfast.kinds.mission.fold.state import MissionState, TaskState, TaskStatus
from holdfast.kinds.mission.plan import overlap, plan_from_items, plan_problems, read_plan, ready, stuck, too_large


def item(name: str, *criteria: str, **more: Any) -> Item:
    """An item with executable criteria."""
    return Item(
        name, f"the {name}", criteria=tuple(Criterion(c, f"{c} works", Check("true")) for c in criteria), **more
    )


CONTRACT = Contract(
    "all of it",
    (
        item("base", "b1", "b2", paths=("src/base.py",)),
        item("more", "m1", depends=("base",), paths=("src/more.py",)),
        item("far", "f1", depends=("more",)),
        Item("suite", "the old suite", criteria=(Criterion("old", "it stays green", Check("true"), guard=True),)),
    ),
)

GOOD = (
    Task("one", "base", ("b1", "b2"), ("src/base.py",)),
    Task("two", "more", ("m1",), ("src/more.py",), ("one",)),
    Task("three", "far", ("f1",), (), ("two",)),
)


def mission(*tasks: tuple[Task, TaskStatus], passed: tuple[str, ...] = (), tokens: int = 60_000) -> MissionState:
    """A mission with these tasks."""
    state = MissionState(CONTRACT, MissionPolicy(task_tokens=tokens), planned=bool(tasks))
    state.tasks = {task.id: TaskState(task, status) for task, status in tasks}
    state.passed = dict.fromkeys(passed, 1)
    return state


def replaced(place: int, **changes: Any) -> tuple[Task, ...]:
    """The good plan with one task changed."""
    changed = msgspec.structs.replace(GOOD[place], **changes)
    return (*GOOD[:place], changed, *GOOD[place + 1 :])


def test_a_plan_that_is_closed_has_no_problem() -> None:
    assert plan_problems(GOOD, mission()) == ()


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (GOOD[:2], "No task has the criterion f1: f1 works"),
        ((), "The plan has no task"),
        (replaced(1, criteria=()), "Task two has no criterion"),
        (replaced(1, criteria=("m1", "m2")), "names the criterion m2, which the contract does not have"),
        (replaced(1, criteria=("m1", "b1")), "The criterion b1 is in one and in two"),
        (replaced(1, depends=("zero",)), "depends on zero, which does not exist"),
        (replaced(0, depends=("three",)), "one -> three -> two -> one"),
        (replaced(0, depends=("one",)), "one -> one"),
        (replaced(1, depends=()), "has criteria of more, which builds on base; that is in task one"),
        (replaced(1, id="ONE"), "The id ONE is taken"),
        (replaced(2, id="main"), "'main' is not a valid task id"),
        (replaced(2, id="a/b"), "'a/b' is not a valid task id"),
        (replaced(2, id="a..b"), "'a..b' is not a valid task id"),
        (replaced(2, id="x.lock"), "'x.lock' is not a valid task id"),
        (replaced(2, title=" "), "has no title"),
        (tuple(Task(f"t{n}", "t", ("b1",)) for n in range(501)), "501 tasks"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tasks: tuple[Task, ...], words: str) -> None:
    assert any(words in each for each in plan_problems(tasks, mission())), plan_problems(tasks, mission())


def test_what_a_task_builds_on_may_come_before_it_at_any_distance_or_be_met_already() -> None:
    far = (GOOD[0], Task("two", "more", ("m1",), (), ("one",)), Task("three", "far", ("f1",), (), ("two",)))
    assert plan_problems(far, mission()) == ()
    assert plan_problems(GOOD[2:], mission(passed=("b1", "b2", "m1"))) != ()  # it depends on `two`, which is not there
    alone = (Task("three", "far", ("f1",)),)
    assert plan_problems(alone, mission(passed=("b1", "b2", "m1"))) == ()
    together = (Task("all", "all", ("b1", "b2", "m1", "f1")),)
    assert plan_problems(together, mission()) == ()


def test_a_later_plan_takes_the_place_of_what_nobody_has_begun_and_leaves_the_rest() -> None:
    state = mission((GOOD[0], "working"), (GOOD[1], "planned"), (GOOD[2], "failed"))
    again = (Task("two-2", "more", ("m1",), (), ("one",)), Task("three-2", "far", ("f1",), (), ("two-2",)))
    assert plan_problems(again, state) == ()
    assert any("No task has the criterion m1" in each for each in plan_problems(again[1:], state))
    twice = (*again, Task("one-2", "base", ("b1", "b2")))
    assert any("which is in the task one" in each for each in plan_problems(twice, state))
    assert any("Task none cannot be dropped" in each for each in plan_problems(again, state, "", ("none",)))
    assert any("it is already failed" in each for each in plan_problems(again, state, "", ("three",)))
    dropped = (
        Task("one-2", "base", ("b1", "b2")),
        Task("two-2", "more", ("m1",), (), ("one-2",)),
        Task("three-2", "far", ("f1",), (), ("two-2",)),
    )
    assert plan_problems(dropped, state, "", ("one",)) == ()


def test_a_task_that_failed_cannot_be_waited_for() -> None:
    state = mission((GOOD[0], "failed"), passed=("b1", "b2"))
    assert any("will never be merged" in each for each in plan_problems(GOOD[1:2], state))


# --- parts ---------------------------------------------------------------------------------------


def test_a_large_task_is_taken_apart_and_its_parts_have_its_criteria_and_no_others() -> None:
    whole = Task("one", "base", ("b1", "b2"), tokens=90_000)
    state = mission((whole, "planned"), (GOOD[1], "planned"))
    assert too_large(state) == "one"
    assert [task.task.id for task in ready(state)] == []
    parts = (Task("one-a", "first", ("b1",)), Task("one-b", "second", ("b2",), (), ("one-a",)))
    assert plan_problems(parts, state, "one") == ()
    assert any("No task has the criterion b2" in each for each in plan_problems(parts[:1], state, "one"))
    more = (*parts, Task("one-c", "more", ("m1",)))
    assert any("m1, which is none of task one" in each for each in plan_problems(more, state, "one"))


def test_who_waits_for_a_task_that_was_taken_apart_waits_for_all_its_parts() -> None:
    first = Task("one-a", "first", ("b1",), parent="one")
    second = Task("one-b", "second", ("b2",), parent="one")
    state = mission((GOOD[0], "dropped"), (first, "merged"), (second, "working"), (GOOD[1], "planned"))
    assert ready(state) == []
    assert stuck(state) == []
    state.tasks["one-b"].status = "merged"
    assert [task.task.id for task in ready(state)] == ["two"]
    state.tasks["one-b"].status = "failed"
    assert [(task.task.id, vain) for task, vain in stuck(state)] == [("two", "one")]


def test_parts_of_parts_are_not_parted_again_and_one_criterion_has_no_parts() -> None:
    top = Task("one", "base", ("b1", "b2"), split=True)
    part = Task("one-a", "part", ("b1", "b2"), split=True, parent="one")
    deep = Task("one-b", "deep", ("b1", "b2"), split=True, parent="one-a")
    assert too_large(mission((top, "planned"))) == "one"
    assert too_large(mission((top, "dropped"), (part, "planned"))) == "one-a"
    assert too_large(mission((top, "dropped"), (part, "dropped"), (deep, "planned"))) is None
    state = mission((top, "dropped"), (part, "planned"))
    assert any("a part of a part" in each for each in plan_problems((deep,), state, "one-a"))
    assert too_large(mission((Task("x", "x", ("b1",), tokens=1_000_000), "planned"))) is None


# --- what a planner hands in ---------------------------------------------------------------------


def test_a_plan_is_read_as_it_was_handed_in_and_nonsense_is_none() -> None:
    task = {"id": "a", "title": "t", "criteria": ["b1"], "split": True, "depends": [], "tokens": 5}
    tasks, dropped, note = read_plan({"tasks": [task], "drop": ["old"], "note": "n"})
    assert tasks == (Task("a", "t", ("b1",), tokens=5, split=True),)
    assert (dropped, note) == (("old",), "n")
    nothing, _, why = read_plan({"tasks": "all of them"})
    assert nothing == ()
    assert "invalid plan" in why


# --- by code -------------------------------------------------------------------------------------


def test_a_plan_by_code_is_one_task_for_each_item_and_has_no_problem() -> None:
    tasks = plan_from_items(CONTRACT)
    assert [task.id for task in tasks] == ["base", "more", "far"]
    assert plan_problems(tasks, mission()) == ()
    assert tasks[1].scope == ("src/more.py",)
    left = plan_from_items(CONTRACT, skip=("b1", "b2", "m1"))
    assert [(task.id, task.depends) for task in left] == [("far", ())]


def test_a_plan_by_code_goes_by_priority_and_by_what_others_build_on() -> None:
    items = (item("z", "1", priority=5), item("a", "2", priority=1, depends=("z",)), item("m", "3", priority=3))
    assert [task.id for task in plan_from_items(Contract("g", items))] == ["z", "a", "m"]


@given(some.lists(some.text(max_size=30), min_size=1, max_size=12, unique=True), some.randoms())
def test_a_plan_by_code_can_always_be_worked_by(names: list[str], chance: Any) -> None:
    items = [
        item(name, f"c{number}", depends=tuple(chance.sample(names[:number], min(number, chance.randrange(3)))))
        for number, name in enumerate(names)
    ]
    chance.shuffle(items)
    state = MissionState(Contract("g", tuple(items)), MissionPolicy())
    assert plan_problems(plan_from_items(state.contract), state) == ()


# --- what can begin ------------------------------------------------------------------------------


def test_a_task_begins_when_what_it_depends_on_is_merged() -> None:
    state = mission(*((task, "planned") for task in GOOD))
    assert [task.task.id for task in ready(state)] == ["one"]
    state.tasks["one"].status = "queued"
    assert ready(state) == []
    state.tasks["one"].status = "merged"
    assert [task.task.id for task in ready(state)] == ["two"]


def test_two_tasks_that_may_touch_the_same_files_do_not_begin_side_by_side() -> None:
    tasks = [
        Task("a", "a", ("b1",), ("src/*.py",)),
        Task("b", "b", ("b2",), ("src/base.py",)),
        Task("c", "c", ("m1",), ("docs",)),
    ]
    state = mission(*((task, "planned") for task in tasks))
    assert [task.task.id for task in ready(state)] == ["a", "c"]
    state.tasks["a"].status = "judging"
    assert [task.task.id for task in ready(state)] == ["c"]
    state.tasks["a"].status = "merged"
    assert [task.task.id for task in ready(state)] == ["b", "c"]


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        ("src/a.py", "src/a.py", True),
        ("src/a.py", "src/b.py", False),
        ("src", "src/a.py", True),
        ("src/", "src/a/b.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a.txt", False),
        ("src/*/x.py", "src/a/*.py", True),
        ("**/x.py", "src/a/x.py", True),
        ("**/x.py", "src/a/y.py", True),  # a folder may have any name
        ("**", "anything", True),
        ("src/[ab].py", "src/a.py", True),
        ("src/a?.py", "src/ab.py", True),
        ("./src/a.py", "src/a.py", True),
        ("a*b*c", "*bb*", True),
        ("tests/**", "src/**", False),
    ],
)
def test_globs_that_can_mean_the_same_file_overlap(one: str, other: str, meets: bool) -> None:
    assert overlap((one,), (other,)) is meets
    assert overlap((other,), (one,)) is meets


@given(
    some.lists(some.sampled_from(["a", "b", "ab", "*", "a*", "?", "**", "[ab]"]), min_size=1, max_size=4),
    some.lists(some.sampled_from(["a", "b", "ab", "*", "*b", "?b", "**"]), min_size=1, max_size=4),
    some.lists(some.sampled_from(["a", "b", "ab"]), min_size=1, max_size=5),
)
def test_whatever_two_globs_both_match_they_overlap(one: list[str], other: list[str], path: list[str]) -> None:
    globs, name = ("/".join(one), "/".join(other)), "/".join(path)
    if all(matches(name, (glob,)) for glob in globs):
        assert overlap(globs[:1], globs[1:])
