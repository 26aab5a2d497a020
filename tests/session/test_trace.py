"""The trace: what is kept of responses and results, and what counts as new."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.facts.base import Fact
from holdfast.facts.model import (
    AgentMessage,
    ContextCompacted,
    ContextReset,
    Handoff,
    ModelRequestEnd,
    ModelRequestStart,
)
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.signs.features import (
    CHECKS,
    KEEPS,
    LEFT,
    LIMIT,
    MUTATES,
    PROSE,
    READS,
    STUB,
    WAITS,
    about,
    alike,
    flags_of,
    result_digests,
    stub_marks,
    text_marks,
)
from holdfast.session.signs.trace import CHANGE, INFORMATION, NOTHING, STEPS_MAX, Step, first_that_counts, note, turns
from tests.support.synthetic.events import Done, Say, Teller
from tests.support.synthetic.healthy import KINDS, healthy


def bash(command: str) -> dict[str, Any]:
    """The input of a command."""
    return {"command": command}


def told(*says: Done) -> list[int]:
    """What each of these calls brought, one a turn."""
    teller = Teller(random.Random(1))
    for say in says:
        teller.tell(Say("words", (say,)))
    return [turn.brought for turn in turns(traced(facts_of(teller)))[0]]


def facts_of(teller: Teller) -> list[tuple[int, Fact]]:
    """All facts with their positions."""
    return [fact for turn in teller.turns for fact in turn.facts]


def traced(facts: list[tuple[int, Fact]]) -> list[Step]:
    """The trace of them."""
    steps: list[Step] = []
    for seq, fact in facts:
        note(steps, fact, seq)
    return steps


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("sleep 30; tail -n 4 build.log", WAITS),
        ("sleep 1 && cat state", 0),
        ("sleep $N; cat state", WAITS),
        ("gh run watch 77", WAITS),
        ("until grep -q ok log; do sleep 2; done", WAITS),
        ("make test 2>&1 | tail -30", CHECKS),
        ("cargo clippy", CHECKS),
        ("sed -i s/a/b/ f.py", MUTATES),
        ("echo x > f", MUTATES),
        ("ls 2>/dev/null", 0),
        ("git commit -m x", MUTATES | KEEPS),
        ("sed -i s/a/b/ f.py && git commit -am x", MUTATES),
        ("git checkout f.py", MUTATES),
        ("git status", 0),
        ("cat waiting.txt", 0),
    ],
)
def test_a_command_says_what_it_is_for(command: str, flags: int) -> None:
    assert flags_of("bash", bash(command)) == flags


def test_tools_say_what_they_are_for() -> None:
    assert flags_of("read", {"file_path": "a"}) == READS
    assert flags_of("write", {"file_path": "docs/a.md"}) == PROSE
    assert flags_of("write", {"file_path": "src/a.py"}) == 0
    assert flags_of("wait_for_child", {}) == WAITS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5 passed in 0.31s", "5 passed in 12.4 seconds"),
        ("12:30:01 started\nready", "23:59:59 started\nready"),
        ("commit 4f2a9c1 done", "commit a81bc03 done"),
        ("[2211] retry", "[931] retry"),
        ("x\nx\nx", "x"),
    ],
)
def test_times_and_codes_do_not_make_a_result_another(one: str, other: str) -> None:
    assert result_digests(one)[0] == result_digests(other)[0]


@pytest.mark.parametrize(
    ("one", "other", "same_shape"),
    [("5 passed, 2 failed", "6 passed, 1 failed", True), ("a.py", "b.py", False), ("45% done", "46% done", True)],
)
def test_numbers_that_count_make_a_result_another(one: str, other: str, same_shape: bool) -> None:
    first, second = result_digests(one), result_digests(other)
    assert first[0] != second[0]
    assert (first[1] == second[1]) is same_shape


def test_the_same_thing_in_other_words_is_about_the_same() -> None:
    one, other = about("bash", bash("grep -rn needle src/")), about("bash", bash("rg needle ./src"))
    assert alike(one, other)
    assert not alike(one, about("bash", bash("grep -rn thread lib/")))


def test_an_edit_is_about_its_file_and_the_text_it_replaces() -> None:
    one = about("edit", {"file_path": "src/a.py", "old_string": "old_name(x)", "new_string": "new_name(x)"})
    other = about("edit", {"file_path": "lib/b.py", "old_string": "old_name(x)", "new_string": "else"})
    assert one[0] != other[0]
    assert one[1:] == other[1:]
    assert about("write", {"file_path": "a.py", "content": "a b"})[0] == one[0]


def test_phrases() -> None:
    assert text_marks("I am running low on context, so only the main case.") & LIMIT
    assert text_marks("x" * 5_000 + " I'll leave the rest for later.") & LEFT
    assert text_marks("The context manager closes the rest of the files.") == 0
    assert stub_marks("edit", {"old_string": "a", "new_string": "a # TODO"}) == STUB
    assert stub_marks("edit", {"old_string": "b # TODO", "new_string": "a # TODO"}) == 0


def test_a_change_is_a_file_as_it_has_not_been() -> None:
    value = {"file_path": "a.py", "old_string": "x", "new_string": "y"}
    there = Done("edit", value, "Edited a.py", files={"a.py": "1"})
    back = Done("edit", value, "Edited a.py", files={"a.py": "2"})
    assert told(there, back, there, back) == [CHANGE, CHANGE, NOTHING, NOTHING]


def test_information_is_what_no_result_has_shown() -> None:
    text = "a line that is long enough to say something"
    cat, head = Done("bash", bash("cat a.py"), text), Done("bash", bash("head a.py"), text)
    other = Done("bash", bash("cat a.py"), text + " else")
    assert told(cat, head, other) == [INFORMATION, NOTHING, INFORMATION]


def test_an_empty_result_says_something_about_another_thing_only() -> None:
    found = told(
        Done("grep", {"pattern": "needle"}), Done("bash", bash("grep -r needle .")), Done("grep", {"pattern": "thread"})
    )
    assert found == [INFORMATION, NOTHING, INFORMATION]


def test_more_of_the_same_lines_is_nothing_new() -> None:
    command = bash("cat app.log")
    assert told(
        Done("bash", command, "start of the log file\nretry 1 failed"),
        Done("bash", command, "start of the log file\nretry 1 failed\nretry 2 failed"),
        Done("bash", command, "start of the log file\nretry 1 failed\nconnected"),
    ) == [INFORMATION, NOTHING, INFORMATION]


def test_a_failed_request_and_a_summary_leave_no_step() -> None:
    steps: list[Step] = []
    note(steps, ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=1, max_output_tokens=1), 2)
    note(steps, ModelRequestEnd(request_seq=2, outcome="error"), 3)
    note(steps, ModelRequestStart(purpose="handoff", model="m", attempt=1, inputs_through=1, max_output_tokens=1), 4)
    note(steps, AgentMessage(request_seq=4, content=()), 5)
    note(steps, ModelRequestEnd(request_seq=4, outcome="ok"), 6)
    assert steps == []


def test_a_reset_clears_and_a_summary_bounds() -> None:
    teller = Teller(random.Random(1))
    for _ in range(3):
        teller.tell(Say("words", (Done("bash", bash("ls"), "a"),)))
    facts = facts_of(teller)
    compacted = ContextCompacted(request_seq=0, from_seq=1, through_seq=9, summary="s")
    every, first = turns(traced([*facts, (98, compacted)]))
    assert (len(every), first) == (3, 3)
    reset = ContextReset(cause="line", through_seq=99, handoff=Handoff())
    assert traced([*facts, (98, compacted), (99, reset)]) == []


def test_calls_that_did_not_run_or_are_unknown_end_too() -> None:
    steps: list[Step] = []
    teller = Teller(random.Random(1))
    teller.tell(Say("words", (Done("bash", bash("a")), Done("bash", bash("b")))))
    for seq, fact in facts_of(teller):
        if not isinstance(fact, ToolResult):
            note(steps, fact, seq)
    assert not steps[0].ended()
    note(steps, ToolResult(call_id=f"{steps[0].seq}.0", outcome="denied", content="no"), 90)
    note(steps, ToolOutcomeUnknown(call_id=f"{steps[0].seq}.1", reason="lost", content="unknown"), 91)
    assert steps[0].ended()
    assert turns(steps)[0][0].brought == INFORMATION, "only what may have run shows something"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(sorted(KINDS)), st.floats(0.2, 1.0))
def test_the_trace_follows_from_the_last_responses_alone(seed: int, kind: str, part: float) -> None:
    facts = [fact for turn in healthy(seed, kind, turns=80).turns for fact in turn.facts]
    facts = facts[: int(len(facts) * part)]
    assert traced(facts[first_that_counts(facts) :]) == traced(facts)


def test_it_stays_small_and_comes_back_as_it_was() -> None:
    facts = [fact for turn in healthy(3, "refactoring", turns=200).turns for fact in turn.facts]
    steps = traced(facts)
    packed = msgspec.msgpack.encode(steps)
    assert len(steps) <= STEPS_MAX
    assert len(packed) < 200 * STEPS_MAX
    assert msgspec.msgpack.decode(packed, type=list[Step]) == steps


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text(), st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.none())))
def test_no_text_breaks_it(content: str, name: str, value: dict[str, Any]) -> None:
    result_digests(content)
    text_marks(content)
    for tool in (name, "bash", "edit"):
        about(tool, value)
        flags_of(tool, {**value, "command": content, "file_path": content})
        stub_marks(tool, {**value, "new_string": content})
