"""Notes to a successor: their shape, how they are joined, one by code; a stretch of the log as text."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.facts.base import Document, Image, Text
from holdfast.facts.model import ContextReset, Handoff
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import FileSeen, ToolOutcomeUnknown
from holdfast.session.context.handoff import (
    CHARACTERS_MAX,
    ENTRIES_MAX,
    FILES_MAX,
    LEFT_OUT,
    SECTIONS,
    SHORTEST,
    files_of,
    mechanical,
    merge,
    parse,
    schema,
    transcript,
)
from holdfast.session.context.notes import note_of
from tests.session.story import Story

ENTRIES = st.lists(st.text(min_size=1, max_size=30).filter(str.strip), max_size=60).map(tuple)
HANDOFFS = st.builds(Handoff, done=ENTRIES, workspace=ENTRIES, decisions=ENTRIES, next=ENTRIES)


# --- shape ---------------------------------------------------------------------------------------


def test_the_schema_names_every_section_and_refers_to_nothing() -> None:
    wanted = schema()
    assert list(wanted["properties"]) == list(SECTIONS) == wanted["required"]
    assert "$ref" not in json.dumps(wanted)
    assert wanted["additionalProperties"] is False
    full = {name: ["a"] for name in SECTIONS}
    assert parse(json.dumps(full)) == Handoff(**{name: ("a",) for name in SECTIONS})


def test_a_fenced_answer_is_read_all_the_same() -> None:
    assert parse('```json\n{"done": ["a"]}\n```') == Handoff(done=("a",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("I am done.", "does not fit its schema"),
        ('{"done": "a"}', "does not fit its schema"),
        ('{"done": [1]}', "does not fit its schema"),
        ('{"gossip": ["a"]}', "does not fit its schema"),
        ('{"done": ["a"', "does not fit its schema"),
        ("{}", "is empty"),
        ('{"done": ["", "  "]}', "is empty"),
        (json.dumps({"done": [LEFT_OUT]}), "is empty"),
    ],
)
def test_what_is_no_note_is_said_so(text: str, why: str) -> None:
    found = parse(text)
    assert isinstance(found, str)
    assert why in found


# --- joining -------------------------------------------------------------------------------------


@given(HANDOFFS, HANDOFFS)
def test_entries_are_added_letter_by_letter_and_never_rewritten(earlier: Handoff, new: Handoff) -> None:
    both = merge(earlier, new)
    for name in SECTIONS:
        old, fresh, entries = getattr(earlier, name), getattr(new, name), getattr(both, name)
        distinct = list(dict.fromkeys((*old, *fresh)))
        if len(distinct) <= ENTRIES_MAX:
            assert list(entries) == distinct
        else:
            assert entries[0] == LEFT_OUT
            assert list(entries[1:]) == distinct[-ENTRIES_MAX:]
    assert merge(both, Handoff()) == both
    assert merge(None, both) == both


def test_what_is_left_out_is_said_once_and_the_newest_stay() -> None:
    note: Handoff | None = None
    for number in range(4 * ENTRIES_MAX):
        note = merge(note, Handoff(done=(f"step {number}",), next=("go on",)))
    assert note is not None
    assert note.next == ("go on",)
    assert note.done.count(LEFT_OUT) == 1
    assert note.done[0] == LEFT_OUT
    assert note.done[-1] == f"step {4 * ENTRIES_MAX - 1}"
    assert len(note.done) == ENTRIES_MAX + 1


def test_all_entries_together_are_bounded() -> None:
    note: Handoff | None = None
    for number in range(50):
        note = merge(note, Handoff(done=("d" * 900 + str(number),), dead_ends=("e" * 900 + str(number),)))
    assert note is not None
    assert sum(len(entry) for name in SECTIONS for entry in getattr(note, name)) <= CHARACTERS_MAX
    assert note.done[-1].endswith("49")
    assert note.dead_ends[-1].endswith("49")
    small = merge(note, Handoff(), 3_000)
    assert sum(len(entry) for name in SECTIONS for entry in getattr(small, name)) <= 3_000
    assert small.done[-1] == note.done[-1]


def test_files_that_a_note_speaks_of_carry_their_digests() -> None:
    seen = {"/workspace/a.py": "d1", "/workspace/deep/b.py": "d2", "/workspace/c.py": "d3"}
    note = Handoff(workspace=("a.py is half done",), next=("look at /workspace/deep/b.py",))
    assert files_of(note, seen) == {"/workspace/a.py": "d1", "/workspace/deep/b.py": "d2"}
    many = {f"/workspace/f{number}.py": "d" for number in range(200)}
    assert len(files_of(Handoff(done=tuple(many)), many)) == FILES_MAX
    shown = note_of(
        ContextReset(cause="line", through_seq=1, handoff=note, files={"/workspace/a.py": "abcdef0123456789ff"})
    )
    assert "- /workspace/a.py abcdef0123456789\n" in shown + "\n"
    assert "read each one before you change it" in shown


# --- by code -------------------------------------------------------------------------------------


def test_code_says_what_the_log_shows_and_no_more() -> None:
    story = Story().shift().hands()
    write, edit, first, again, fails, unknown = story.answer(
        "My plan.",
        ("write", {"file_path": "a.txt", "content": "x"}),
        ("edit", {"file_path": "b.txt", "old_string": "x", "new_string": "y"}),
        ("bash", {"command": "make test"}),
        ("bash", {"command": "make   test"}),
        ("bash", {"command": "make lint"}),
        ("bash", {"command": "./deploy " + "now " * 300}),
    )
    story.dispatch(write).result(write, files=(FileSeen("/workspace/a.txt", "ab" * 32),))
    story.dispatch(edit).result(edit, outcome="error")
    story.dispatch(first).result(first, outcome="error")
    story.dispatch(again).result(again)
    story.dispatch(fails).result(fails, outcome="error")
    story.dispatch(unknown).tell(ToolOutcomeUnknown(call_id=unknown, reason="r", content="look"))
    (denied,) = story.answer("", ("bash", {"command": "rm -rf /"}))
    story.result(denied, outcome="denied")
    story.answer("These are my last words.", ("bash", {"command": "ls"}))
    note = mechanical(story.state().window, story.bodies, "nobody else would")
    assert note.done == (f"changed /workspace/a.txt (SHA-256 {'ab' * 8})", "ran with success: make test")
    assert note.workspace[0] == "failed when last run: make lint"
    assert note.workspace[1].startswith("failed when last run: ./deploy now")
    assert len(note.workspace[1]) < 450
    assert len(note.workspace) == 2
    assert note.next == (
        "the last words before this note: These are my last words.",
        "(written by the harness: nobody else would)",
    )
    assert "rm -rf" not in msgspec.json.encode(note).decode()


# --- the transcript ------------------------------------------------------------------------------


def test_a_stretch_is_told_in_order_with_its_positions_and_pictures_by_name() -> None:
    story = Story().shift().hands()
    story.tell(
        UserMessage(content=(Text("look at this"), Image("image/png", b"x" * 9), Document("text/csv", b"1", "t.csv")))
    )
    (call,) = story.answer("I look.", ("bash", {"command": "ls"}))
    story.dispatch(call).result(call, "a.txt")
    text = transcript(story.state().window, story.bodies, 10_000)
    said = "[4] a person said:\nlook at this\n[image image/png, 9 bytes]\n[document t.csv text/csv, 1 bytes]"
    assert text.startswith(said)
    for piece in ("the agent said:\nI look.", f"asked for call {call}:\nbash: ls", f"call {call} ended (ok):\na.txt"):
        assert piece in text
    assert [text.index(word) for word in ("I look.", "bash: ls", "a.txt")] == sorted(
        text.index(word) for word in ("I look.", "bash: ls", "a.txt")
    )


@pytest.mark.parametrize("room", [2_000, 8_000, 30_000])
def test_only_the_middle_of_the_longest_entries_is_left_out(room: int) -> None:
    story = Story().shift().hands()
    (call,) = story.answer("short words", ("bash", {"command": "cat big"}))
    story.dispatch(call).result(call, "BEGIN" + "x" * 100_000 + "END")
    text = transcript(story.state().window, story.bodies, room)
    assert len(text) <= room + 200
    assert "short words" in text
    assert "BEGIN" in text
    assert text.endswith("END")
    assert "characters are left out here" in text


def test_what_was_erased_is_named_and_nothing_is_cut_below_the_least() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("said", ("bash", {"command": "ls"}))
    story.dispatch(call).result(call, "r" * SHORTEST)
    window = story.state().window
    assert transcript(window, story.bodies, 1).endswith("r" * SHORTEST)
    assert "(this was erased)" in transcript(window, {}, 1_000)
