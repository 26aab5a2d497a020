"""What a session does about what stands ready: it goes on, goes on without, or waits for a person."""

from __future__ import annotations

from typing import Any

from holdfast.facts.base import Text
from holdfast.facts.hands import EgressSeen, EnvironmentRecorded, Step
from holdfast.facts.people import UserInterrupt, UserMessage
from holdfast.facts.session import Environment
from holdfast.session.actions import AskModel, End, Record
from holdfast.session.context.notes import note_of
from holdfast.session.decide import decide
from tests.session.story import Story

FAILED = EnvironmentRecorded(digest="d1", error="it failed")
MADE = EnvironmentRecorded(
    digest="d1", steps=(Step("npm ci", 0),), packages=("zlib=1",), folders=("/usr", "/workspace/node_modules")
)


def told(*facts: Any, **policy: Any) -> Story:
    """A session with that environment, and what was recorded of it."""
    return Story(environment=Environment(**policy)).shift().tell(*facts)


def test_work_that_must_not_begin_without_waits_for_a_person() -> None:
    story = told(FAILED, auto=True, setup=("make",))
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert (action.fact.status, action.fact.reason, action.fact.detail) == ("parked", "person", "it failed")
    assert story.state().pending == []
    story.tell(UserMessage(content=(Text("mended"),)))
    assert isinstance(decide(story.state(), story.now_us), AskModel)
    assert story.state().environment_error == ""


def test_an_interruption_comes_before_what_does_not_stand_ready() -> None:
    story = told(FAILED, auto=True, setup=("make",)).tell(UserInterrupt())
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert action.fact.detail == "interrupted; send a message to go on"


def test_what_was_only_found_is_gone_on_without_until_a_person_speaks() -> None:
    story = told(FAILED, auto=True)
    state = story.state()
    assert isinstance(decide(state, story.now_us), AskModel)
    assert state.environment_failed == "d1"
    assert len(state.pending) == 1
    story.tell(UserMessage(content=(Text("try again"),)))
    assert story.state().environment_failed == ""


def test_the_model_is_told_once_of_each_environment() -> None:
    story = told(MADE, MADE, auto=True)
    assert len(story.state().pending) == 1
    assert story.state().environment == "d1"
    story.tell(EnvironmentRecorded(digest="d2"))
    assert len(story.state().pending) == 2


def test_the_note_says_what_is_ready_and_what_does_not_last() -> None:
    note = note_of(MADE)
    for words in ("npm ci", "zlib=1", "/workspace/node_modules", "are not kept"):
        assert words in note
    assert "/usr" not in note
    assert "Go on without it." in note_of(FAILED)


def test_hosts_that_a_set_up_read_from_mark_the_session_and_registries_do_not() -> None:
    registry = EgressSeen(verdict="allowed", host="registry.test", port=443, registry=True)
    named = EgressSeen(verdict="allowed", host="named.test", port=443)
    story = told(EnvironmentRecorded(digest="d", seen=(registry,)), auto=True)
    assert isinstance(decide(story.state(), story.now_us), AskModel)
    story = told(EnvironmentRecorded(digest="d", seen=(registry, named)), auto=True)
    action = decide(story.state(), story.now_us)
    assert isinstance(action, Record)
    assert "named.test" in str(action.facts[0])
