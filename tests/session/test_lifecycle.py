"""When a context is renewed: from state to action, for each strategy and for failures (S16)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.facts.base import Text
from holdfast.facts.model import ModelRequestEnd, PhaseEnded
from holdfast.facts.people import UserInterrupt, UserMessage
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.session.actions import AskModel, Compact, End, Escalate, Reset, WaitUntil
from holdfast.session.context.window import line_tokens
from holdfast.session.decide import decide
from holdfast.session.decide.context import compactable, tool_share, window_tokens
from holdfast.session.state import ResponseItem, State
from tests.session.contexts import BASH, action_of, begin, fails, limits, shapes, story_of, succeeds, useless, worked
from tests.session.story import Story

# --- strategies ----------------------------------------------------------------------------------


def test_below_the_line_nothing_is_done() -> None:
    story = story_of(turns=3)
    assert window_tokens(story.state()) < line_tokens(story.state())
    assert isinstance(action_of(story), AskModel)


def test_over_the_line_older_turns_are_compacted_and_the_newest_stay_in_full() -> None:
    story = story_of(turns=7, keep_tokens=1_300)
    before = story.state()
    action = action_of(story)
    assert action == Compact(compactable(before), 1, "scripted:x")
    after = succeeds(story, action).state()
    assert shapes(after) == ["SummaryItem", "ResponseItem", "ResponseItem"]
    kept = after.window[1:]
    assert kept == before.window[-2:]
    assert sum(item.tokens for item in kept) <= 1_300
    assert window_tokens(after) < line_tokens(after)
    assert after.window_tokens == sum(item.tokens for item in after.window) + (before.window_tokens - _all(before))
    assert isinstance(action_of(story), AskModel)


def _all(state: State) -> int:
    return sum(item.tokens for item in state.window)


def test_as_much_stays_as_the_policy_keeps() -> None:
    state = story_of(keep_tokens=2_000).state()
    kept = [item for item in state.window if isinstance(item, ResponseItem) and item.request_seq > compactable(state)]
    one = state.window[0].tokens
    assert len(kept) == 2_000 // one == 3


def test_results_that_the_model_has_not_seen_are_never_compacted() -> None:
    story = story_of(turns=6)
    worked(story, 1, printed=12_000)
    state = story.state()
    last = state.window[-1]
    assert isinstance(last, ResponseItem)
    assert 0 < compactable(state) < last.request_seq


def test_a_stretch_longer_than_the_line_is_compacted_in_several() -> None:
    story = story_of(turns=16)
    first = action_of(story)
    second = action_of(succeeds(story, first))
    assert isinstance(second, Compact)
    assert second.through_seq > first.through_seq
    state = succeeds(story, second).state()
    assert shapes(state)[:2] == ["SummaryItem", "SummaryItem"]
    assert state.context.through_seq == second.through_seq


def test_one_giant_turn_is_reset_since_nothing_else_can_be_taken_away() -> None:
    story = worked(Story(limits=limits()).shift().hands(), 1, printed=40_000)
    action = action_of(story)
    assert isinstance(action, Reset)
    assert (action.cause, action.through_seq) == ("compaction_failed", len(story.events))
    state = succeeds(story, action).state()
    assert shapes(state) == ["HandoffItem"]
    assert state.calls == []
    assert isinstance(action_of(story), AskModel)


def test_what_a_person_says_is_not_taken_away_and_too_much_of_it_parks() -> None:
    story = Story(limits=Limits(context_tokens=1_000)).shift()
    story.tell(UserMessage(content=(Text("x" * 8_000),)))
    action = action_of(story)
    assert isinstance(action, End)
    assert action.fact.reason == "context"


def test_off_parks_at_the_limit_and_renews_nothing() -> None:
    story = worked(Story(limits=Limits(context=ContextPolicy(strategy="off"), context_tokens=4_000)).shift().hands(), 8)
    action = action_of(story)
    assert isinstance(action, End)
    assert (action.fact.status, action.fact.reason) == ("parked", "context")


@pytest.mark.parametrize(("strategy", "kind"), [("reset", Reset), ("compaction", Compact), ("hybrid", Compact)])
def test_each_strategy_at_the_line(strategy: str, kind: type[Any]) -> None:
    assert isinstance(action_of(story_of(strategy)), kind)


def test_auto_resets_where_most_of_the_context_is_output_of_tools() -> None:
    talk = story_of("auto")
    assert tool_share(talk.state()) < 0.8
    assert isinstance(action_of(talk), Compact)
    output = worked(Story(limits=limits("auto")).shift().hands(), 8, said=100, printed=2_400)
    assert tool_share(output.state()) > 0.8
    action = action_of(output)
    assert isinstance(action, Reset)
    assert action.cause == "line"


@pytest.mark.parametrize("strategy", ["reset", "hybrid", "auto", "compaction", "off"])
def test_the_end_of_a_phase_is_a_reset_where_the_strategy_has_resets(strategy: str) -> None:
    story = worked(Story(limits=limits(strategy)).shift().hands(), 2)
    story.tell(PhaseEnded(call_id="1.0", name="looking"))
    action = action_of(story)
    if strategy in ("compaction", "off"):
        assert isinstance(action, AskModel)
        return
    assert isinstance(action, Reset)
    assert action.cause == "phase"
    assert isinstance(action_of(succeeds(story, action)), AskModel)


def test_nothing_is_renewed_while_a_call_is_open_or_when_the_work_is_over_or_capped() -> None:
    story = story_of(turns=7)
    (call,) = story.answer("x" * 4_000, (BASH, {"command": "last"}))
    assert call in [each.call_id for each in story.state().open_calls()]
    assert not isinstance(action_of(story), Compact | Reset)
    over = story_of(turns=7)
    over.answer("finished " + "x" * 4_000)
    assert isinstance(action_of(over), End)
    policy = limits().context
    capped = worked(Story(limits=Limits(context=policy, max_turns=8)).shift().hands(), 8)
    action = action_of(capped)
    assert isinstance(action, End)
    assert action.fact.reason == "cap"


# --- failures ------------------------------------------------------------------------------------


def test_failed_compactions_lead_to_a_reset_and_failed_resets_to_a_note_by_code() -> None:
    story = story_of()
    for _ in range(2):
        action = action_of(story)
        assert isinstance(action, Compact)
        useless(story, action)
    for _ in range(2):
        action = action_of(story)
        assert isinstance(action, Reset)
        assert (action.cause, action.model) == ("compaction_failed", "scripted:x")
        useless(story, action)
    action = action_of(story)
    assert isinstance(action, Reset)
    assert action.model == ""
    state = succeeds(story, action).state()
    assert (state.context.failures, state.context.handoff_failures) == (0, 0)
    assert isinstance(action_of(story), AskModel)


def test_a_failed_request_is_tried_again_later_with_its_own_count() -> None:
    story = fails(story_of(), action_of(story_of()))
    waits = action_of(story)
    assert isinstance(waits, WaitUntil)
    again = decide(story.state(), waits.at_us)
    assert isinstance(again, Compact)
    assert again.attempt == 2
    turn = action_of(succeeds(story, again))
    assert isinstance(turn, AskModel)
    assert turn.attempt == 1
    assert story.state().failure is None


def test_the_turns_own_failures_count_on_through_a_compaction() -> None:
    story = story_of(turns=3)
    story.fail("overloaded")
    story.tell(UserMessage(content=(Text("x" * 12_000),)))
    action = action_of(story, 10)
    assert isinstance(action, Compact)
    assert action.attempt == 1
    turn = action_of(succeeds(story, action))
    assert isinstance(turn, AskModel)
    assert turn.attempt == 2


@pytest.mark.parametrize("kind", ["invalid_request", "timeout", "bad_stream"])
def test_what_no_retry_mends_ends_no_session(kind: str) -> None:
    story = story_of()
    seen = []
    action: Any = None
    for _ in range(5):
        action = action_of(story, 60)
        assert isinstance(action, Compact | Reset)
        seen.append((type(action), action.model))
        if isinstance(action, Reset) and not action.model:
            break
        fails(story, action, kind)
    asked = "scripted:x"
    assert seen == [(Compact, asked), (Compact, asked), (Reset, asked), (Reset, asked), (Reset, "")]
    assert isinstance(action_of(succeeds(story, action)), AskModel), "at once: the failures were not the turn's"


def test_an_outage_is_waited_for_and_says_nothing_against_the_compaction() -> None:
    story = story_of()
    for _ in range(4):
        fails(story, action_of(story, 60), "overloaded")
    assert isinstance(action_of(story, 60), Compact)
    long = fails(story_of(), action_of(story_of()), "rate_limited", 5_000)
    action = action_of(long)
    assert isinstance(action, End)
    assert action.fact.reason == "provider"


def test_an_interrupted_compaction_parks_and_a_message_brings_it_back() -> None:
    story = story_of()
    seq = begin(story, action_of(story))
    story.tell(UserInterrupt(), ModelRequestEnd(request_seq=seq, outcome="cancelled", cost_pico=0))
    action = action_of(story)
    assert isinstance(action, End)
    assert action.fact.reason == "person"
    story.tell(UserMessage(content=(Text("go on"),)))
    action = action_of(story)
    assert isinstance(action, Compact)
    begin(story, action)
    assert not story.state().stopping


def test_a_compaction_that_died_is_presumed_and_made_again() -> None:
    story = story_of()
    first = action_of(story)
    seq = begin(story, first)
    story.shift()
    story.tell(ModelRequestEnd(request_seq=seq, outcome="presumed"))
    assert action_of(story) == first


def test_a_small_gain_is_not_worth_a_request() -> None:
    story = Story(limits=limits(line_tokens=1_000), pinned="r" * 4_000).shift().hands()
    worked(story, 1, said=100, printed=100)
    assert window_tokens(story.state()) > line_tokens(story.state())
    assert isinstance(action_of(story), AskModel)


def test_contexts_that_are_only_filled_by_looking_end_at_a_person() -> None:
    story = Story(limits=limits("reset")).shift().hands()
    action: Any = None
    for _ in range(12):
        while isinstance(action := action_of(story), AskModel):
            number = len(story.events)
            (call,) = story.answer("", ("read", {"file_path": f"{number}"}))
            story.dispatch(call).result(call, f"{number} " + "p" * 4_000)
        if not isinstance(action, Reset):
            break
        succeeds(story, action)
    assert isinstance(action, Escalate)
    assert action.breaker == "no_progress"
