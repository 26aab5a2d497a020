"""A fork's state: what it takes over from its origin and what not (S22)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import LogDamaged
from holdfast.facts.base import Erased, Text
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalRequested,
    Grant,
    UserCancel,
    UserMessage,
    UserPause,
    UserResume,
)
from holdfast.facts.session import Limits, Rule, SessionForked, Workspace
from holdfast.facts.shift import ChildOpened
from holdfast.kinds import KINDS
from holdfast.session.actions import AskModel
from holdfast.session.context.conversation import TextPart, ToolResultPart
from holdfast.session.context.window import build, needed
from holdfast.session.decide import decide, is_idle
from holdfast.session.fold import empty, fold
from holdfast.session.fold.hands import CARRIED, MADE_ANEW, NOT_CARRIED, RESTING
from holdfast.session.state import State
from tests.session.story import Story


def forked(story: Story, **more: Any) -> Story:
    """The story goes on as a fork."""
    return story.tell(
        SessionForked(
            origin="ses_1",
            origin_seq=len(story.events),
            origin_hash="00",
            goal="the goal",
            model="scripted:x",
            workspace=Workspace("/other", disposable=True),
            accounts=("ses_2", "project:web"),
            **more,
        )
    )


def shown(story: Story) -> str:
    """All text of the next request."""
    state = story.state()
    context = build(state, {seq: story.bodies[seq] for seq in needed(state)}, "")
    parts = [part for message in context.messages for part in message.parts]
    words = [part.text for part in parts if isinstance(part, TextPart)]
    return "\n".join([*words, *(part.content for part in parts if isinstance(part, ToolResultPart))])


def test_every_field_of_a_state_is_carried_or_not() -> None:
    groups = (MADE_ANEW, CARRIED, NOT_CARRIED)
    assert set().union(*groups) == set(State.__struct_fields__)
    assert sum(map(len, groups)) == len(State.__struct_fields__)


def test_what_was_open_ends_and_what_was_held_is_not_there() -> None:
    story = Story(limits=Limits(budget_pico=900)).shift().hands()
    ids = story.answer("look", ("read", {"path": "a"}), ("bash", {"command": "x"}), ("bash", {"command": "y"}))
    story.dispatch(ids[0]).result(ids[0]).dispatch(ids[1])
    story.tell(ApprovalRequested(item_id="itm_1", kind="tool", title="may it?", action="y", call_id=ids[2]))
    story.tell(ApprovalDecided(item_id="itm_1", verdict="approve", grant=Grant(tool="bash", uses=3)))
    story.tell(ChildOpened(child_id="ses_9", call_id=ids[1], goal="help"))
    before = story.state()
    state = forked(story, budget_pico=5, owner="ann", key="mine").state()
    assert [call.end for call in state.calls] == ["ok", "cancelled", "cancelled"]
    assert before.asks or before.grants
    fresh = State(session_id="ses_1")
    assert {name: getattr(state, name) for name in NOT_CARRIED} == {name: getattr(fresh, name) for name in NOT_CARRIED}
    assert state.created is not None
    assert (state.created.workspace.path, state.created.accounts) == ("/other", ("ses_2", "project:web"))
    assert (state.limits.budget_pico, state.owner, state.created.key, state.created.parent) == (5, "ann", "mine", None)
    text = shown(story)
    assert text.count("it was not run here") == 2
    assert "up to its event" in text


def test_an_open_request_is_not_the_forks_to_settle() -> None:
    story = Story(limits=Limits(budget_pico=900)).shift()
    story.ask(reserved=40)
    state = forked(story).tell(UserResume()).shift().state()
    assert state.request is None
    assert isinstance(decide(state, story.now_us), AskModel)


def test_it_rests_until_it_is_woken_or_told_something() -> None:
    story = forked(Story().shift())
    for ended in (story.state(),):
        assert ended.ended == RESTING
        assert is_idle(ended, 2**62)
    for said in (UserResume(), UserMessage(content=(Text("another way"),))):
        told = Story().shift()
        state = forked(told).tell(said).state()
        assert not is_idle(state, told.now_us)
        assert isinstance(decide(told.shift().state(), told.now_us), AskModel)


@pytest.mark.parametrize("said", [UserCancel(), UserPause()])
def test_what_stopped_the_origin_does_not_stop_a_fork(said: UserCancel | UserPause) -> None:
    story = forked(Story().shift().tell(said)).tell(UserResume()).shift()
    assert isinstance(decide(story.state(), story.now_us), AskModel)


def test_the_model_is_told_what_is_not_in_the_files() -> None:
    story = Story().shift()
    text = shown(forked(story, snapshot_seq=1, unkept=("3.0", "5.1")))
    assert "as they were after event 1" in text
    assert "3.0, 5.1" in text
    assert "later calls" not in shown(forked(Story().shift(), snapshot_seq=1))


def test_a_fork_renews_no_permission() -> None:
    story = Story(rules=(Rule("bash", "deny"), Rule("bash", "allow", uses=1, for_s=3600))).shift().hands()
    (call_id,) = story.answer("", ("bash", {"command": "x"}))
    story.dispatch(call_id).result(call_id)
    before = story.state()
    after = forked(story).state()
    assert before.rule_uses == after.rule_uses != {}
    assert before.created_us == after.created_us


def test_nothing_goes_on_from_a_fork_whose_first_body_is_gone() -> None:
    story = forked(Story().shift())
    story.events[-1] = msgspec.structs.replace(story.events[-1], fact=Erased(digest="00"), id="", actor="")
    with pytest.raises(LogDamaged, match="erased"):
        fold(empty("ses_1", KINDS), story.events)


def test_tokens_are_counted_as_they_are_shown() -> None:
    story = Story().shift().hands()
    story.answer("", ("bash", {"command": "x"}))
    before = story.state()
    state = forked(story).state()
    assert state.window_tokens > before.window_tokens
    assert state.window_tokens - before.window_tokens == state.window[-1].tokens - before.window[-1].tokens
    (note,) = [item for item in state.pending if item.seq == len(story.events)]
    assert note.tokens > 20
