"""What a renewed context holds, and how signs and rules are answered (S16, S17, S18)."""

from __future__ import annotations

from typing import Any

from holdfast.facts.base import Text
from holdfast.facts.model import ContextReset, ContextSign, Handoff, ModelRequestEnd, PhaseEnded
from holdfast.facts.people import UserMessage
from holdfast.facts.shift import BreakerClosed
from holdfast.session.actions import AskModel, CheckRules, Compact, End, Escalate, Record, Reset
from holdfast.session.decide.context import SIGN_RESETS_MAX
from holdfast.session.fold.requests import SUMMARIES_AFTER_RESET_TOKENS
from holdfast.session.state import HandoffItem, SummaryItem
from tests.session.contexts import BASH, action_of, limits, shapes, story_of, succeeds, worked
from tests.session.story import Story

# --- the fold ------------------------------------------------------------------------------------


def test_a_message_that_came_during_a_response_outlives_the_summary_of_it() -> None:
    story = story_of(turns=6)
    seq = story.ask()
    story.tell(UserMessage(content=(Text("in between"),)))
    story.tell(ModelRequestEnd(request_seq=seq, outcome="ok", stop_reason="max_tokens"))
    worked(story, 2)
    state = succeeds(story, action_of(story)).state()
    posted = seq + 1
    covered = [item for item in state.window if getattr(item, "seq", 0) == posted]
    assert covered or posted < state.context.through_seq
    pending = story_of()
    action = action_of(pending)
    pending.tell(UserMessage(content=(Text("late"),)))
    assert [item.seq for item in succeeds(pending, action).state().pending] == [len(pending.events) - 3]


def test_the_oldest_summaries_are_dropped_never_summarised_and_the_rest_says_so() -> None:
    story = story_of()
    for _ in range(4):
        action = action_of(story)
        assert isinstance(action, Compact)
        succeeds(story, action, "w" * 1_600)
        worked(story, 6)
    summaries = [item for item in story.state().window if isinstance(item, SummaryItem)]
    assert sum(item.tokens for item in summaries) <= 1_000
    assert 0 < summaries[0].dropped_seq < summaries[0].through_seq


def test_a_reset_keeps_the_summaries_that_fit_and_forgets_what_was_read() -> None:
    story = story_of("hybrid")
    succeeds(story, action_of(story))
    worked(story, 1)
    story.tell(PhaseEnded(call_id="1.0", name="looking"))
    state = succeeds(story, action_of(story)).state()
    assert shapes(state) == ["HandoffItem", "SummaryItem"]
    assert isinstance(state.window[0], HandoffItem)
    assert state.seen == {}
    assert state.context.tool_tokens == 0
    assert state.window[1].tokens < SUMMARIES_AFTER_RESET_TOKENS


def test_a_reset_of_a_worker_that_had_stopped_makes_it_go_on() -> None:
    story = Story().shift()
    story.answer("I stop here; the rest can be done in another session.")
    assert isinstance(action_of(story), End)
    story.tell(ContextReset(cause="anxiety", through_seq=len(story.events), handoff=Handoff(next=("the rest",))))
    assert story.state().unseen
    assert isinstance(action_of(story), AskModel)


# --- signs and rules -----------------------------------------------------------------------------


def looping(story: Story, turns: int = 5) -> Story:
    """The same call with the same result."""
    for _ in range(turns):
        (call,) = story.answer("Again.", (BASH, {"command": "cat notes"}))
        story.dispatch(call).result(call, "the same notes as before, line by line")
    return story


def answered(story: Story) -> Any:
    """Record the sign, if one is found, and say what comes of it."""
    action = action_of(story)
    if isinstance(action, Record):
        story.tell(*action.facts)  # type: ignore[arg-type]  # facts are of the union
        action = action_of(story)
    return action


def test_a_sign_is_recorded_once_then_answered_by_one_reset_then_by_a_person() -> None:
    story = looping(Story(limits=limits(signs=True)).shift().hands())
    action = answered(story)
    assert isinstance(action, Reset)
    assert action.cause == "loop"
    succeeds(story, action)
    assert isinstance(action_of(story), AskModel)
    action = answered(looping(story))
    assert isinstance(action, Escalate)
    assert action.breaker == "no_progress"
    signs = [event.fact for event in story.events if isinstance(event.fact, ContextSign)]
    assert len(signs) == 2
    assert all(sign.evidence for sign in signs)


def test_progress_after_a_reset_earns_another_one_but_not_for_ever() -> None:
    story = Story(limits=limits(signs=True)).shift().hands()
    for _ in range(SIGN_RESETS_MAX):
        action = answered(looping(story))
        assert isinstance(action, Reset)
        succeeds(story, action)
        number = len(story.events)
        (call,) = story.answer("", (BASH, {"command": f"git commit -am step{number}"}))
        story.dispatch(call).result(call, f"committed {number} with some words")
    assert isinstance(answered(looping(story)), Escalate)


def test_a_person_who_speaks_or_says_go_on_starts_the_count_anew() -> None:
    for fact in (UserMessage(content=(Text("go on"),)), BreakerClosed(breaker="no_progress", detail="go on")):
        story = looping(Story(limits=limits(signs=True)).shift().hands())
        succeeds(story, answered(story))
        looping(story).tell(fact)
        assert isinstance(action_of(story), AskModel)
        assert isinstance(answered(looping(story)), Reset)


def test_signs_can_be_switched_off() -> None:
    assert isinstance(action_of(looping(Story(limits=limits()).shift().hands(), 8)), AskModel)


RULES = "# Rules\n\n- Never run `git push*`.\n"


def test_rules_are_looked_at_every_so_many_turns_if_there_are_any() -> None:
    few = limits(check_every=3)
    story = worked(Story(limits=few, pinned=RULES).shift().hands(), 3, said=10)
    assert action_of(story) == CheckRules(0, len(story.events))
    without = worked(Story(limits=few, pinned="Be kind.").shift().hands(), 3, said=10)
    assert isinstance(action_of(without), AskModel)
