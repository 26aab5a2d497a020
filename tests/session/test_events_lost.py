"""What the core makes of events that are lost: calls whose outcome nobody knows, hands that are asked nothing more."""

from __future__ import annotations

from holdfast.facts.session import SessionEventsLost
from holdfast.facts.tool import FileSeen, ToolOutcomeUnknown
from holdfast.session.actions import Record
from holdfast.session.decide import decide
from tests.session.story import Story

LOST = SessionEventsLost(content="Events of this session are lost.", known_seq=20)


def test_a_call_that_may_have_been_sent_off_has_no_known_outcome() -> None:
    story = Story().shift().hands()
    done, command, read = story.answer(
        "", ("bash", {"command": "one"}), ("bash", {"command": "two"}), ("read", {"file_path": "a"})
    )
    story.dispatch(done).result(done, files=(FileSeen("a", "d"),))
    story.tell(LOST).shift()
    state = story.state()
    lost = {call.call_id: call.lost for call in state.open_calls()}
    assert lost == {command: True, read: False}, "a call that only reads can be made again"
    assert state.hands is None, "they may know later calls under the ids of calls to come"
    assert state.seen == {}
    action = decide(state, story.now_us)
    assert isinstance(action, Record)
    (unknown,) = action.facts
    assert isinstance(unknown, ToolOutcomeUnknown)
    assert unknown.call_id == command


def test_the_model_is_told_with_the_next_request() -> None:
    story = Story().shift().tell(LOST)
    assert [item.seq for item in story.state().pending][-1:] == [len(story.events)]
