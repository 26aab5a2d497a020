"""What a session does about those that it opened, from the state alone."""

from __future__ import annotations

from typing import Any

from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.session.actions import CancelChildren
from holdfast.session.decide.waits import cancel_first
from tests.session.story import Story


def opened(story: Story, *names: str) -> Story:
    """Children of these names."""
    return story.tell(*(ChildOpened(child_id=f"ses_{name}", call_id="1.0", goal="g", name=name) for name in names))


def ended(name: str, status: Any, reason: Any = None) -> ChildFinished:
    """The report of one."""
    return ChildFinished(child_id=f"ses_{name}", status=status, reason=reason)


def test_those_at_work_and_those_parked_for_good_are_cancelled_before_their_parent() -> None:
    story = opened(Story(), "works", "done", "failed", "stuck", "told")
    story.tell(
        ended("done", "done"),
        ended("failed", "failed"),
        ended("stuck", "parked", "cap"),
        ChildCancelled(child_id="ses_told"),
    )
    assert cancel_first(story.state()) == CancelChildren(("ses_works", "ses_stuck"))
    story.tell(ChildCancelled(child_id="ses_works"), ChildCancelled(child_id="ses_stuck"))
    assert cancel_first(story.state()) is None


def test_a_message_makes_a_child_work_again() -> None:
    story = opened(Story(), "a").tell(ended("a", "done"))
    assert story.state().live_children() == []
    story.tell(ChildMessaged(child_id="ses_a", call_id="1.1", text="more"))
    assert [child.child_id for child in story.state().live_children()] == ["ses_a"]


def test_a_report_is_shown_to_the_model_unless_it_cancelled_the_child() -> None:
    story = opened(Story(), "a", "b").tell(
        ChildCancelled(child_id="ses_b"), ended("a", "done"), ended("b", "cancelled")
    )
    state = story.state()
    shown = [item.seq for item in state.pending]
    assert state.children["ses_a"].finished_seq in shown
    assert state.children["ses_b"].finished_seq not in shown
