"""Trees that workers leave without handing in, and hand-ins without a change."""

from __future__ import annotations

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy, Task
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import TaskHandedIn, TaskQueued, TaskRefused
from holdfast.kinds.mission.conductor import tasks
from holdfast.kinds.mission.conductor.actions import OpenRole, TellRole
from holdfast.kinds.mission.fold.state import MissionState, TaskState, Verdict
from holdfast.session.actions import Record
from holdfast.session.state import State

CRITERIA = (Criterion("run", "it runs", Check("true")), Criterion("read", "it reads well"))


def mission(*names: str, **changes: object) -> tuple[MissionState, TaskState]:
    """A mission with one task under way, for these of its criteria."""
    found = MissionState(Contract("g", (Item("i", "one", criteria=CRITERIA),)), MissionPolicy())
    found.ref = "refs/heads/holdfast/m/main"
    task = TaskState(Task("t", "T", names), status="working", child_id="ses_w", attempt=1)
    for name, value in changes.items():
        setattr(task, name, value)
    found.tasks["t"] = task
    return found, task


def reported(found: MissionState, **fields: object) -> None:
    found.reports["ses_w"] = ChildFinished(child_id="ses_w", **fields)  # type: ignore[arg-type]


def test_a_tree_that_a_worker_left_is_looked_at_before_it_is_given_up() -> None:
    found, _ = mission("run")
    reported(found, status="done", detail="it stopped 3 times", commit="c1", tree="t1")
    record = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(record, Record)
    (fact,) = record.facts
    assert isinstance(fact, TaskHandedIn)
    assert (fact.status, fact.commit, fact.tree) == ("stopped", "c1", "t1")


def test_so_is_the_tree_of_one_that_failed() -> None:
    found, _ = mission("run")
    reported(found, status="failed", detail="too many turns", commit="c1", tree="t1")
    record = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(record, Record)
    assert [type(fact) for fact in record.facts] == [TaskHandedIn]


def test_a_tree_that_was_looked_at_already_is_not_looked_at_again() -> None:
    found, _ = mission("run", tree="t1")
    reported(found, status="done", detail="it says nothing", commit="c1", tree="t1")
    told = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(told, TellRole)
    assert "Call `hand_in`" in told.text


def test_without_a_tree_a_fresh_worker_begins() -> None:
    found, _ = mission("run")
    reported(found, status="failed", detail="too many turns")
    assert isinstance(tasks.step(State("ses_m"), found, frozenset()), OpenRole)


def test_a_left_tree_that_is_red_costs_its_worker_no_further_word() -> None:
    found, _ = mission("run", status="inspected", tree="t1", commit="c1", stopped=True, changed=1)
    found.verdicts["t1"] = {"run": Verdict(4, "fail")}
    record = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(record, Record)
    (refused,) = record.facts
    assert isinstance(refused, TaskRefused)
    assert refused.restart


def test_a_left_tree_that_is_green_goes_on_to_the_judge() -> None:
    found, _ = mission("run", status="inspected", tree="t1", commit="c1", stopped=True, changed=1)
    found.verdicts["t1"] = {"run": Verdict(4, "pass")}
    opened = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(opened, OpenRole)
    assert opened.kind == "judge"


def test_no_judge_is_asked_about_a_hand_in_without_a_change() -> None:
    found, _ = mission("read", status="inspected", tree="t1", commit="c1")
    told = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(told, TellRole)
    (refused,) = told.facts
    assert isinstance(refused, TaskRefused)
    assert refused.kind == "empty"
    assert "nothing was changed" in refused.issues[0]


def test_one_is_asked_when_something_showed_that_it_holds_or_when_checks_alone_count() -> None:
    found, _ = mission("read", status="inspected", tree="t1", commit="c1")
    found.passed["read"] = 3
    held = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(held, OpenRole)
    found, _ = mission("run", status="inspected", tree="t1", commit="c1", judged=True)
    found.verdicts["t1"] = {"run": Verdict(4, "pass")}
    record = tasks.step(State("ses_m"), found, frozenset())
    assert isinstance(record, Record)
    assert isinstance(record.facts[0], TaskQueued)
