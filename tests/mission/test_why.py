"""From a line to what made it: which merge brought it, whose work that was, which call holds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.facts.mission import Check, Contract, Criterion, Item, Task
from holdfast.facts.model import AgentToolUse
from holdfast.facts.task import RepoMerged, TaskHandedIn, TaskQueued
from holdfast.facts.tool import ToolResult
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.kinds.mission.why import Written, chain, handed_in, mapped, suspects, wrote
from tests.mission.brief_mission import MAIN, World, contract_of, sha


@pytest.mark.parametrize(
    ("newer", "older", "line", "was"),
    [
        ("a\nb\nc", "a\nb\nc", 2, 2),
        ("x\na\nb", "a\nb", 3, 2),
        ("a\nB\nc", "a\nb\nc", 2, None),
        ("a\nc", "a\nb\nc", 2, 3),
        ("a\nb\n", "", 1, None),
        ("a", "a", 2, None),
        ("a", "a", 0, None),
    ],
)
def test_where_a_line_was(newer: str, older: str, line: int, was: int | None) -> None:
    assert mapped(newer, older, line) == was


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12), st.data())
def test_a_line_that_was_there_is_the_same_one(newer: list[str], older: list[str], data: st.DataObject) -> None:
    line = data.draw(st.integers(1, len(newer) + 1))
    was = mapped("\n".join(newer), "\n".join(older), line)
    if was is not None:
        assert older[was - 1] == newer[line - 1]


def mission() -> World:
    """Three tasks: two that touch one file and are merged together, and one that does not."""
    contract, tasks = contract_of(3)
    world = World(contract, tasks)
    for task in tasks[:2]:
        child = world.works(task, files=("src/shared.py",))
        words = {"file_path": "src/shared.py", "old_string": "gone = 1", "new_string": f"    line_{task.id} = 2\n"}
        child.tell(
            AgentToolUse(request_seq=1, call_id="x1", name="edit", input=words),
            ToolResult(call_id="x1", outcome="ok", content="done"),
            AgentToolUse(request_seq=1, call_id="x2", name="bash", input={"command": f"echo line_{task.id} = 2"}),
            ToolResult(call_id="x2", outcome="ok", content="done"),
            AgentToolUse(request_seq=1, call_id="x3", name="write", input=words),
            ToolResult(call_id="x3", outcome="error", content="no"),
        )
        world.top.tell(TaskQueued(task_id=task.id, commit=sha(task.id), tree=sha(f"t-{task.id}")))
    world.works(tasks[2])
    world.merges(tasks[2], 1)
    names = tuple(name for task in tasks[:2] for name in task.criteria)
    world.checks(sha("both"), names, effect="merged:2")
    world.top.tell(
        RepoMerged(
            batch=2, ref=MAIN, commit=sha("c2"), tree=sha("both"), onto=world.main, tasks=("T000", "T001"), passed=names
        )
    )
    world.checks(sha("later"), names)
    return world


def test_only_merges_that_touched_the_file_are_looked_at() -> None:
    world = mission()
    (merge,) = suspects(world.top.events, "src/shared.py")
    assert (merge.commit, merge.tasks) == (sha("c2"), ("T000", "T001"))
    assert suspects(world.top.events, "src/other.py") == []


def test_a_call_that_went_well_and_is_about_the_file_goes_before_a_later_one() -> None:
    world = mission()
    log = world.below[0].events
    found = wrote(log, "src/shared.py", "line_T000 = 2")
    assert found is not None
    assert isinstance(found.fact, AgentToolUse)
    assert found.fact.call_id == "x1"
    assert wrote(log, "src/shared.py", "gone = 1") is None
    assert wrote(log, "src/shared.py", "  ") is None


def test_a_chain_goes_from_the_merge_to_the_verdict_on_what_was_merged() -> None:
    world = mission()
    (merge,) = suspects(world.top.events, "src/shared.py")
    hand_in = handed_in(world.top.events, "T001", merge.event.seq)
    assert hand_in is not None
    assert isinstance(hand_in.fact, TaskHandedIn)
    mission_state = of_mission(world.state())
    log = world.below[1].events
    links = chain(mission_state, world.top.events, merge, hand_in, Written("src/shared.py", "line_T001 = 2", log))
    assert [link.what for link in links] == ["merged", "task", "worker", "call", *["criterion"] * 4]
    assert links[1].text == "T001: part 1"
    assert links[3].evidence[0].session_id == world.below[1].session_id
    for link in links[4:]:
        event = world.top.events[link.evidence[0].seq - 1]
        assert event.fact.tree == sha("both")  # type: ignore[attr-defined]
    unknown = chain(mission_state, world.top.events, merge, hand_in, Written("src/shared.py", "formatted()", log))
    assert "no call in its log" in unknown[3].text
    assert unknown[3].evidence == ()


def test_what_people_committed_ends_at_the_merge() -> None:
    contract = Contract("g", (Item("a", "a", criteria=(Criterion("c", "c", Check("true")),)),))
    world = World(contract, (Task("T", "t", ("c",)),))
    world.top.tell(RepoMerged(batch=1, ref=MAIN, commit=sha("c1"), tree=sha("x"), onto=world.main, base=sha("people")))
    (merge,) = suspects(world.top.events, "any.py")
    state = of_mission(world.state())
    (link,) = chain(state, world.top.events, merge, None, Written("any.py", "x"))
    assert "new commits of the followed branch" in link.text
