"""A contract that is changed: what asks less needs a person, what asks more does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.facts.mission import Check, Contract, Criterion, Item, Metric
from holdfast.kinds.mission.contract.amend import compare
from holdfast.kinds.mission.contract.contents import metric_holds

CHECK = Check("pytest -q", ("a.py", "b.py"), None, 60.0)
SCORE = Check("python bench.py", (), Metric(0.9, 0.05, "at_least"))

BEFORE = Contract(
    "Greets.",
    (
        Item(
            "a", "A", criteria=(Criterion("a.check", "passes", CHECK), Criterion("a.guard", "stays", CHECK, guard=True))
        ),
        Item(
            "b",
            "B",
            steps=("one",),
            criteria=(Criterion("b.line", "Bo is greeted.", needs_run=True), Criterion("b.score", "s", SCORE)),
        ),
    ),
    protected=("tests/**", "mission.toml"),
)


def with_criterion(name: str, **changes: Any) -> Contract:
    """The contract with a criterion that is another."""
    items = tuple(
        msgspec.structs.replace(
            item,
            criteria=tuple(
                msgspec.structs.replace(each, **changes) if each.id == name else each for each in item.criteria
            ),
        )
        for item in BEFORE.items
    )
    return msgspec.structs.replace(BEFORE, items=items)


def check(**changes: Any) -> Check:
    """The check with something else."""
    return msgspec.structs.replace(CHECK, **changes)


def score(*values: Any) -> Check:
    """The check with another metric."""
    return msgspec.structs.replace(SCORE, metric=Metric(*values))


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("a.check", {"check": None}, "its check was removed"),
        ("a.check", {"check": check(command="true")}, "its command changed"),
        ("a.check", {"check": check(tests=("a.py",))}, "b.py"),
        ("a.check", {"check": check(tests=())}, "a.py, b.py"),
        ("a.check", {"check": check(timeout_s=61)}, "to 61 s"),
        ("a.check", {"guard": True}, "now a guard"),
        ("a.guard", {"guard": False}, "no longer a guard"),
        ("b.line", {"text": "Somebody is greeted."}, "text changed"),
        ("b.line", {"check": CHECK}, "not a judge"),
        ("b.line", {"needs_run": False}, "without running anything"),
        ("b.score", {"check": score(0.8, 0.05, "at_least")}, "more values"),
        ("b.score", {"check": score(0.9, 0.1, "at_least")}, "more values"),
        ("b.score", {"check": score(0.9, 0.05, "at_most")}, "more values"),
        ("b.score", {"check": msgspec.structs.replace(SCORE, metric=None)}, "metric was removed"),
        ("b.score", {"check": msgspec.structs.replace(SCORE, tests=("x",))}, "only some"),
    ],
)
def test_what_asks_less_is_weaker(name: str, changes: dict[str, Any], why: str) -> None:
    found = compare(BEFORE, with_criterion(name, **changes))
    assert list(found.weaker) == [name]
    assert why in found.weaker[name]
    assert found.needs_person


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("a.check", {"check": check(tests=("a.py", "c.py", "b.py"))}),
        ("a.check", {"check": check(timeout_s=30)}),
        ("a.check", {"check": check(metric=Metric(1.0))}),
        ("b.score", {"check": score(0.95, 0.05, "at_least")}),
        ("b.score", {"check": score(0.9, 0.01, "at_least")}),
        ("b.score", {"check": score(0.9, 0.05, "equal")}),
    ],
)
def test_what_asks_more_is_stricter(name: str, changes: dict[str, Any]) -> None:
    found = compare(BEFORE, with_criterion(name, **changes))
    assert list(found.stricter) == [name]
    assert not found.needs_person


def test_what_goes_is_weaker_and_what_comes_is_added() -> None:
    first, second = BEFORE.items
    less = compare(BEFORE, msgspec.structs.replace(BEFORE, items=(first,)))
    assert less.weaker == {"b.line": "removed", "b.score": "removed"}
    more = compare(msgspec.structs.replace(BEFORE, items=(second,)), BEFORE)
    assert (more.weaker, more.added) == ({}, ("a.check", "a.guard"))


def test_the_goal_and_what_is_protected() -> None:
    other = msgspec.structs.replace(BEFORE, goal="Greets a bit.", protected=("mission.toml", "data/**"))
    found = compare(BEFORE, other)
    assert sorted(found.weaker) == ["goal", "protected tests/**"]
    assert list(found.stricter) == ["protected data/**"]


def test_words_of_an_item_count_where_a_judge_reads_them() -> None:
    first, second = BEFORE.items
    reworded = (msgspec.structs.replace(first, description="Aa"), msgspec.structs.replace(second, steps=()))
    found = compare(BEFORE, msgspec.structs.replace(BEFORE, items=reworded))
    assert list(found.weaker) == ["b.line"]
    assert found.reworded == ("a",)


def test_the_order_of_work_is_no_amendment() -> None:
    first, second = BEFORE.items
    moved = msgspec.structs.replace(BEFORE, items=(msgspec.structs.replace(second, priority=3, paths=("x",)), first))
    assert not compare(BEFORE, moved).changes


METRICS = st.builds(Metric, st.integers(-5, 5), st.integers(0, 3), st.sampled_from(["at_least", "at_most", "equal"]))


@given(METRICS, METRICS)
def test_a_metric_is_weaker_when_a_value_becomes_good_enough(before: Metric, after: Metric) -> None:
    one, two = (
        with_criterion("b.score", check=msgspec.structs.replace(SCORE, metric=each)) for each in (before, after)
    )
    values = [value / 2 for value in range(-40, 41)]
    newly = [value for value in values if metric_holds(after, value) and not metric_holds(before, value)]
    found = compare(one, two)
    assert bool(found.weaker) == bool(newly)
    if not newly:
        lost = [value for value in values if metric_holds(before, value) and not metric_holds(after, value)]
        assert bool(found.stricter) == bool(lost)
