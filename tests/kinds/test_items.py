"""Runs over a list: lists and their keys, schemas, and the conductor's decisions against a simulated world."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from holdfast.brain.recall import decode, encode
from holdfast.errors import UsageError
from holdfast.facts.base import Fact
from holdfast.facts.items import (
    ItemAudited,
    ItemData,
    ItemEnded,
    ItemFailed,
    ItemQuarantined,
    Items,
    ItemsAdded,
    ItemsCheckpoint,
    ItemsForecast,
    ItemsReduced,
    ItemsRemoved,
    ItemsRetried,
    ItemStarted,
)
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import BreakerOpened, ChildCancelled, ChildFinished, ChildMessaged, ChildOpened, ShiftStarted
from holdfast.kinds import KINDS
from holdfast.kinds.items import conductor, goals, lists, schema
from holdfast.kinds.items.conductor import Advance, Checkpoint, Forecast, Opening, Raise, Reduce, Wait, decide
from holdfast.kinds.items.kind import KIND
from holdfast.kinds.items.state import ItemsState, is_audited, items_state
from holdfast.session.actions import CancelChildren, End, Escalate, Record
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from tests.kinds.test_kinds import created, story

# --- lists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"id": 1}\n{"id": 2', "line 2 (its last line"),
        (b'{"id": 1}\n{"id": \n{"id": 3}\n', "line 2 is not JSON"),
        (b'{"id": 1}\n[2]\n', "line 2 is not a JSON object"),
        (b'{"id": 1}\n{"id": "\xff"}\n', "line 2 has bytes that are not UTF-8"),
        (b'{"id": 1}\n{"id": 1}\n', "items 1 and 2 have the key '1'"),
        (b'{"id": 1}\n{"name": 1}\n', "item 2 has no text or whole number in its key field 'id'"),
        (b'{"id": 1}\n{"id": " "}\n', "the key of item 2"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_with_the_place(data: bytes, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)) as raised:
        lists.keyed(lists.read_lines(lists.read_text(data, "list"), "list"), "id", "list")
    assert "nothing was started" in str(raised.value)


def test_items_without_a_key_field_are_keyed_by_their_content() -> None:
    one, other = lists.keyed([{"a": 1, "b": 2}, {"a": 2}], "", "list")
    (again,) = lists.keyed([{"b": 2, "a": 1}], "", "list")
    assert one.key == again.key != other.key
    with pytest.raises(UsageError, match="the same fields"):
        lists.keyed([{"a": 1}, {"a": 1}], "", "list")


def test_a_csv_file_needs_a_field_for_each_column() -> None:
    assert lists.read_csv('id,text\n1,"a\nb"\n\n2,c\n', "f") == [{"id": "1", "text": "a\nb"}, {"id": "2", "text": "c"}]
    for text, why in (("id,id\n", "each once"), ("id,text\n1\n", "line 2 has 1 fields"), ('a\n"b', "not CSV")):
        with pytest.raises(UsageError, match=why):
            lists.read_csv(text, "f")


def test_a_prompt_names_the_fields_of_an_item() -> None:
    item = ItemData("k", {"text": "T", "n": [1]})
    assert lists.render("{{x}} {text} {n} {key} {item}", item) == '{x} T [1] k {"text":"T","n":[1]}'
    with pytest.raises(UsageError, match=re.escape("names {other}")):
        lists.check_fields("{other}", [item], "list")


def test_a_large_list_is_several_events_of_bounded_size() -> None:
    data = [ItemData(str(number), {"text": "x" * 1_000}) for number in range(500)]
    parts = lists.parts_of(data)
    assert [item for part in parts for item in part.items] == data
    assert max(len(part.items) for part in parts) <= lists.PART_BYTES // 1_000


# --- schemas -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"type": "objekt"}, "not a JSON schema"),
        ({"$ref": "other.json"}, "another document"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "minimum of 5"),
        ({"type": "string", "enum": [1, 2]}, "no value of the enum"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "requires 'a'"),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, "$.a allows nothing"),
        ({"anyOf": [False, {"type": "array", "minItems": 2, "maxItems": 1}]}, "allows nothing"),
    ],
)
def test_a_schema_that_no_result_can_meet_is_refused(bad: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        schema.check_schema(bad)


def test_a_result_is_checked_against_the_whole_schema() -> None:
    whole = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "multipleOf": 3}}}
    schema.check_schema(whole)
    assert schema.problem(9, whole) == ""
    assert "3" in schema.problem(10, whole)
    assert not goals.is_simple(whole)
    assert goals.is_simple({"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": True}})
    batch = goals.output_schema(Items(each="", schema=whole), ("a", "b"))
    assert schema.problem([{"key": "a", "result": 3}, {"key": "b", "result": 6}], batch) == ""
    assert schema.problem([{"key": "a", "result": 3}, {"key": "b", "result": 7}], batch)


# --- the conductor -------------------------------------------------------------------------------------


class World:
    """A run whose children do what the test says. Each decision is folded as the acts would append it."""

    def __init__(self, count: int, **more: Any) -> None:
        items = Items(each="{n}", count=count, **more)
        self.state = fold(empty("s", KINDS), story(created(items=items)))
        self.told(ShiftStarted(worker_id="w", host_id="h", boot_id="b", pid=1, program="p"))
        self.told(*lists.parts_of([ItemData(f"i{n}", {"n": n}) for n in range(count)], listed=True))
        self.opened: list[str] = []
        self.checkpoints = 0

    @property
    def own(self) -> ItemsState:
        return items_state(self.state)

    def told(self, *facts: Fact) -> None:
        """Fold more events."""
        self.state = fold(self.state, story(*([created()] * self.state.seq), *facts)[self.state.seq :])

    def finish(self, child_id: str, status: str = "done", reason: Any = None) -> None:
        """A child reports."""
        self.told(ChildFinished(child_id=child_id, status=status, reason=reason, cost_pico=1))  # type: ignore[arg-type]

    def settle(self, child_id: str, *, ok: bool) -> list[Fact]:
        """The facts about a child's report."""
        work, facts = self.own.works[child_id], list[Fact]()
        limit = self.state.created.items.tries  # type: ignore[union-attr]
        for key in work.keys:
            item = self.own.items.get(key)
            tries = item.tries if item is not None and item.child_id == child_id else 0
            if ok and work.purpose == "audit":
                facts.append(ItemAudited(key=key, child_id=child_id, ok=True, cost_pico=1))
            elif ok and tries:
                audit = is_audited(key, "s", self.state.created.items.audit)  # type: ignore[union-attr]
                facts.append(ItemEnded(key=key, child_id=child_id, attempt=1, result=1, cost_pico=1, audit=audit))
            else:
                kind = ItemQuarantined if tries >= limit else ItemFailed
                facts.append(kind(key=key, child_id=child_id, attempt=tries, reason="bad", cost_pico=1))
        return facts

    def step(self, good: Any = lambda key: True) -> Any:
        """Carry out one decision; return it."""
        action = decide(self.state, 0)
        match action:
            case Advance():
                facts = [fact for each in action.over for fact in self.settle(each, ok=self._good(each, good))]
                for opening in action.openings:
                    child_id = opening.child_id or f"c{len(self.opened)}"
                    self.opened.append(child_id)
                    started = ItemStarted(
                        child_id=child_id, keys=opening.keys, attempt=opening.attempt, purpose=opening.purpose
                    )
                    first = () if opening.child_id else (ChildOpened(child_id=child_id, call_id="", goal="g"),)
                    facts += [*first, started]
                self.told(*facts)
            case Checkpoint():
                self.checkpoints += 1
                self.told(ItemsCheckpoint(through_seq=1, lines=self.own.done, size=1, sha256=""))
            case Forecast():
                self.told(ItemsForecast(after=1, count=1, seconds=1.0))
            case Record(facts=facts):
                self.told(*facts)
            case CancelChildren(child_ids=names):
                self.told(*(ChildCancelled(child_id=each) for each in names))
            case Raise(child_ids=names):
                self.told(*(ChildMessaged(child_id=each, call_id="", text="") for each in names))
        return action

    def _good(self, child_id: str, good: Any) -> bool:
        return all(good(key) for key in self.own.works[child_id].keys)

    def run(self, good: Any = lambda key: True, chance: Random | None = None) -> Any:
        """Let children report, in any order, until the run stops; return its last action."""
        for _ in range(10_000):
            action = self.step(good)
            if isinstance(action, End | Escalate | Reduce):
                return action
            if isinstance(action, Wait):
                waiting = [name for name, work in self.own.works.items() if not work.finished_seq]
                self.finish((chance or Random(1)).choice(waiting))
        raise AssertionError("it does not stop")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "more", [{}, {"batch": 3}, {"context": "rolling"}, {"audit": 0.5}, {"workers": 1}], ids=lambda more: str(more)
)
def test_each_good_item_is_done_once_and_each_bad_one_quarantined(seed: int, more: dict[str, Any]) -> None:
    chance = Random(seed)
    bad = set(chance.sample([f"i{n}" for n in range(30)], 3))
    world = World(30, max_quarantine=0.1, every=4, **more)
    ended = world.run(lambda key: key not in bad, chance)
    assert isinstance(ended, End)
    assert ended.fact.status == "done"
    assert {key for key, item in world.own.items.items() if item.status == "quarantined"} == bad
    assert (world.own.done, world.own.todo, world.own.works, world.own.unwritten) == (27, {}, {}, [])
    assert world.state.children.keys() <= world.own.idle.keys()
    assert world.checkpoints >= 5
    if not more:
        assert len(world.opened) == 27 + 3 * 3


def test_no_more_than_its_workers_are_open() -> None:
    world = World(10, workers=3)
    world.step()
    assert world.opened == ["c0", "c1", "c2"]
    assert isinstance(world.step(), Wait)
    world.finish("c1")
    action = world.step()
    assert action == Advance(("c1",), (Opening(("i3",), 1),))


def test_a_run_parks_for_its_children_if_nothing_arrives() -> None:
    world = World(3)
    world.step()
    action = decide(world.state, 0, waited=True)
    assert isinstance(action, End)
    assert (action.fact.status, action.fact.reason) == ("parked", "child")


def test_a_run_asks_a_user_above_the_allowed_quarantine_and_goes_on_when_items_are_retried() -> None:
    world = World(20, max_quarantine=0.05, tries=1)
    asked = world.run(lambda key: key not in ("i1", "i2"))
    assert isinstance(asked, Escalate)
    assert world.own.quarantined == 2
    item = ApprovalRequested(
        item_id="itm", kind="escalation", title="t", action="a", action_digest="d", why="w", default="deny"
    )
    world.told(BreakerOpened(breaker=asked.breaker, detail=asked.detail), item)
    assert world.run(lambda key: key not in ("i1", "i2")).fact.reason == "person"
    opened = len(world.opened)
    world.told(ItemsRetried(keys=()))
    world.step()
    assert not world.own.quarantined
    assert world.state.breaker == ""
    assert world.run().fact.status == "done"
    assert len(world.opened) > opened
    assert world.own.done == 20


def test_a_changed_item_is_worked_on_again_and_a_removed_one_is_not() -> None:
    world = World(4, workers=2)
    world.step()
    world.told(ItemsAdded(items=(ItemData("i0", {"n": "new"}), ItemData("i9", {"n": 9})), replace=True))
    world.told(ItemsRemoved(keys=("i1", "i3")))
    assert world.step() == CancelChildren(("c0", "c1"))
    world.finish("c0", "cancelled")
    world.finish("c1", "cancelled")
    ended = world.run()
    assert ended.fact.status == "done"
    assert {key: item.status for key, item in world.own.items.items()} == {"i0": "done", "i2": "done", "i9": "done"}
    assert world.own.items["i0"].tries == 1
    world.told(ItemsRemoved(keys=("i2",)))
    assert world.own.rewrite
    assert isinstance(world.step(), Checkpoint)


def test_a_late_result_of_a_changed_item_does_not_count() -> None:
    world = World(1)
    world.step()
    world.finish("c0")
    world.told(ItemsAdded(items=(ItemData("i0", {"n": "new"}),), replace=True))
    world.step()
    world.step()
    assert (world.own.done, world.own.items["i0"].status) == (0, "running")
    assert world.own.items["i0"].child_id == "c1"


def test_the_end_of_a_cancelled_child_does_not_touch_the_next_one_of_its_item() -> None:
    world = World(1)
    world.step()
    world.told(ItemsAdded(items=(ItemData("i0", {"n": "new"}),), replace=True))
    world.step()
    world.step()
    assert world.opened == ["c0", "c1"]
    world.finish("c0", "cancelled")
    world.step()
    assert (world.own.items["i0"].child_id, list(world.own.works)) == ("c1", ["c1"])
    assert world.run().fact.status == "done"
    assert world.opened == ["c0", "c1"]


def test_children_that_wait_for_the_budget_keep_their_items_and_go_on_when_it_is_raised() -> None:
    world = World(5, workers=2)
    world.step()
    world.finish("c0", "parked", "budget")
    world.finish("c1")
    parked = world.run()
    assert (parked.fact.status, parked.fact.reason) == ("parked", "budget")
    assert len(world.opened) == 2
    world.told(SessionUpdated(budget_pico=100))
    assert world.step() == Raise(("c0",))
    world.finish("c0")
    assert world.run().fact.status == "done"
    assert world.own.done == 5


def test_a_run_whose_list_is_not_complete_does_not_begin() -> None:
    state = fold(empty("s", KINDS), story(created(items=Items(each="", count=2))))
    action = decide(state, 0)
    assert isinstance(action, End)
    assert "incomplete" in action.fact.detail


def test_results_are_reduced_once() -> None:
    world = World(2, reduce_command="wc -l results.jsonl")
    assert isinstance(world.run(), Reduce)
    world.told(ItemsReduced(ok=True, result="2"))
    assert world.run().fact.status == "done"


def test_the_state_of_a_long_list_changes_by_one_item_at_a_time() -> None:
    """A step touches what belongs to its item: the same steps are folded in a long list and in a short one."""

    def steps(count: int) -> Iterator[str]:
        world = World(count, workers=2)
        for _ in range(6):
            action = world.step()
            yield type(action).__name__
            if isinstance(action, Wait):
                world.finish(next(iter(world.own.works)))

    assert list(steps(40)) == list(steps(400))


def test_the_progress_shows_the_rest() -> None:
    world = World(4)
    (line,) = KIND.queue(world.state)
    assert line.startswith("[---")
    world.run()
    (line,) = KIND.queue(world.state)
    assert line.startswith("[###")
    assert "4 of 4 items" in line
    assert KIND.met(world.state) == (4, 4)
    assert conductor.summary(world.own) == "4 of 4 items done"


def test_the_state_in_a_snapshot_is_the_state() -> None:
    world = World(6, context="rolling")
    world.step()
    world.finish("c0")
    world.step()
    again = decode(encode(world.state), KINDS)
    assert isinstance(again, State)
    assert again == world.state
