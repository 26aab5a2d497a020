"""The fold: positions, ends, money, and that a snapshot changes nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.brain.recall import decode, encode
from holdfast.facts.base import Usage
from holdfast.facts.hands import HandsLost, HandsReleased
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import FileSeen
from holdfast.kinds import KINDS
from holdfast.session.fold import empty, fold
from holdfast.session.signs.trace import STEPS_MAX
from tests.session.story import Story

BASH = ("bash", {"command": "ls"})


def a_story() -> Story:
    story = Story().shift().hands()
    first, second = story.answer("look", BASH, ("read", {"file_path": "a"}))
    story.dispatch(first).result(first, files=(FileSeen("/workspace/a", "d1"),))
    story.dispatch(second).tell(HandsLost(hands_id="hnd_1", reason="gone")).shift().hands("hnd_2")
    story.dispatch(second, 2, "hnd_2").result(second, files=(FileSeen("/workspace/a", "d2"),))
    story.fail("overloaded")
    story.answer("done")
    return story


def test_what_the_state_knows_after_a_story() -> None:
    state = a_story().state()
    assert state.responses == 2
    assert state.usage == Usage(20, 10)
    assert state.cost_pico == 14
    assert state.seen == {"/workspace/a": "d2"}
    assert not state.open_calls()
    assert state.hands is not None
    assert list(state.hands_known) == ["hnd_1", "hnd_2"]
    assert state.epoch == 2


@given(st.data())
def test_a_snapshot_at_any_point_changes_nothing(data: st.DataObject) -> None:
    events = a_story().events
    cut = data.draw(st.integers(0, len(events)))
    before = fold(empty("ses_1", KINDS), events[:cut])
    restored = decode(encode(before), KINDS)
    assert restored is not None
    assert fold(restored, events[cut:]) == fold(empty("ses_1", KINDS), events)


@pytest.mark.parametrize("rest", [5, 260, 500])
def test_pages_that_know_the_next_one_give_the_same_state(rest: int) -> None:
    story = Story().shift().hands()
    for number in range(150):
        (call,) = story.answer(f"look {number}", ("bash", {"command": f"ls {number}"}))
        story.dispatch(call).result(call)
    events = story.events
    cuts = [0, 300, len(events) - rest, len(events)]
    pages = [events[first:last] for first, last in pairwise(cuts)]
    state = empty("ses_1", KINDS)
    for page, ahead in zip(pages, [*pages[1:], []], strict=True):
        state = fold(state, page, ahead=ahead)
    assert state == fold(empty("ses_1", KINDS), events)
    assert len(state.trace) == STEPS_MAX


def test_a_call_that_only_reads_leaves_the_files_as_they_were() -> None:
    story = Story().shift().hands()
    (make,) = story.answer("", ("bash", {"command": "make"}))
    changed = story.dispatch(make).result(make).state().mutated_seq
    (read,) = story.answer("", ("read", {"file_path": "a"}))
    assert story.dispatch(read).result(read).state().mutated_seq == changed > 0


def test_hands_of_an_open_call_are_remembered_after_they_are_lost() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("", BASH)
    story.dispatch(call).tell(HandsLost(hands_id="hnd_1", reason="gone"))
    state = story.state()
    assert state.hands is None
    assert list(state.hands_known) == ["hnd_1"]


def test_lost_hands_are_remembered_until_a_shift_ends_for_good() -> None:
    story = Story().shift().hands().tell(HandsLost(hands_id="hnd_1", reason="gone"))
    story.tell(ShiftEnded(status="released")).shift().hands("hnd_2").tell(HandsReleased(hands_id="hnd_2"))
    assert list(story.state().hands_known) == ["hnd_1"]
    assert story.tell(ShiftEnded(status="done")).state().hands_known == {}


def test_a_second_end_of_a_call_is_refused() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("", BASH)
    story.dispatch(call).result(call).result(call)
    with pytest.raises(ValueError, match="ended twice"):
        story.state()


def test_a_gap_is_refused() -> None:
    events = a_story().events
    with pytest.raises(ValueError, match="does not follow"):
        fold(empty("ses_1", KINDS), [events[0], events[2]])


def test_an_unknown_cost_is_remembered_as_unknown() -> None:
    story = Story().shift()
    seq = story.ask()
    story.tell(ModelRequestEnd(request_seq=seq, outcome="presumed", cost_pico=None))
    assert story.state().unpriced
