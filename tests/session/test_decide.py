"""What a brain does next, for each state that matters."""

from __future__ import annotations

import pytest

from holdfast.facts.base import Text
from holdfast.facts.model import AgentToolUse, ModelRequestEnd
from holdfast.facts.people import UserCancel, UserInterrupt, UserMessage
from holdfast.facts.session import Limits, Rule, SessionUpdated
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolOutcomeUnknown
from holdfast.session.actions import (
    AskModel,
    Dispatch,
    End,
    EndCalls,
    PresumeRequest,
    Provision,
    Reconcile,
    WaitUntil,
)
from holdfast.session.decide import decide, is_idle
from holdfast.session.decide.providers import PARK_BEYOND_S, delay_s
from holdfast.session.state import Failure
from tests.session.story import SECOND_US, Story

BASH = ("bash", {"command": "ls"})
READ = ("read", {"file_path": "a"})


def message(text: str = "hello") -> UserMessage:
    return UserMessage(content=(Text(text),))


def test_a_new_session_asks_the_model_and_shows_it_everything() -> None:
    story = Story().shift()
    assert decide(story.state(), story.now_us) == AskModel(inputs_through=2, attempt=1, model="scripted:x")


def test_a_call_needs_hands_before_it_is_dispatched() -> None:
    story = Story().shift()
    (call,) = story.answer("", BASH)
    assert decide(story.state(), story.now_us) == Provision()
    story.hands()
    assert decide(story.state(), story.now_us) == Dispatch((call,))


def test_calls_run_one_after_another_unless_all_are_read_only() -> None:
    story = Story().shift().hands()
    first, second = story.answer("", READ, BASH)
    assert decide(story.state(), story.now_us) == Dispatch((first,))
    story.dispatch(first).result(first)
    assert decide(story.state(), story.now_us) == Dispatch((second,))
    together = Story().shift().hands()
    ids = together.answer("", READ, ("grep", {"pattern": "x"}))
    assert decide(together.state(), together.now_us) == Dispatch(tuple(ids))


def test_results_lead_to_the_next_request_and_words_alone_end_the_session() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("", BASH)
    story.dispatch(call).result(call)
    assert isinstance(decide(story.state(), story.now_us), AskModel)
    story.answer("finished")
    assert decide(story.state(), story.now_us) == End(ShiftEnded(status="done"))


def test_a_message_that_came_during_the_last_answer_is_not_lost() -> None:
    story = Story().shift()
    seq = story.ask()
    story.tell(message())
    story.tell(ModelRequestEnd(request_seq=seq, outcome="ok", stop_reason="end_turn"))
    assert isinstance(decide(story.state(), story.now_us), AskModel)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("refusal", "failed"), ("end_turn", "done")],
)
def test_how_a_response_without_calls_ends_the_shift(stop: str, expected: str) -> None:
    story = Story().shift()
    story.answer("words", stop=stop)  # type: ignore[arg-type]
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert action.fact.status == expected


def test_a_response_cut_at_the_output_limit_is_not_the_end() -> None:
    story = Story().shift()
    story.answer("half a sen", stop="max_tokens")
    assert isinstance(decide(story.state(), story.now_us), AskModel)


def test_an_open_request_is_presumed_at_its_reservation() -> None:
    story = Story().shift()
    seq = story.ask(reserved=99)
    story.shift()
    assert decide(story.state(), story.now_us) == PresumeRequest(seq, 99)


def test_a_dispatched_call_without_an_end_is_reconciled_never_repeated() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("", BASH)
    story.dispatch(call).shift()
    assert decide(story.state(), story.now_us) == Reconcile(call)


def test_an_invalid_call_is_an_error_to_the_model() -> None:
    story = Story().shift()
    (call,) = story.answer("", ("bash", {"comand": "ls"}))
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert action.results[0].call_id == call
    assert action.results[0].outcome == "error"
    assert "comand" in action.results[0].content


def test_malformed_arguments_are_an_error_to_the_model() -> None:
    story = Story().shift()
    seq = story.ask()
    story.tell(AgentToolUse(request_seq=seq, call_id=f"{seq}.0", name="bash", input={}, malformed='{"comm'))
    story.tell(ModelRequestEnd(request_seq=seq, outcome="ok", stop_reason="tool_use"))
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert '{"comm' in action.results[0].content


def test_a_denied_call_does_not_run_and_the_rest_of_its_message_is_skipped() -> None:
    story = Story(rules=(Rule("*", "allow"), Rule("ba*", "deny"))).shift().hands()
    first, second = story.answer("", BASH, READ)
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert [(end.call_id, end.outcome) for end in action.results] == [(first, "denied")]
    story.tell(*action.results)
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert [(end.call_id, end.outcome) for end in action.results] == [(second, "skipped")]


def test_after_an_unknown_outcome_the_rest_of_the_message_is_skipped() -> None:
    story = Story().shift().hands()
    first, second = story.answer("", BASH, BASH)
    story.dispatch(first).tell(ToolOutcomeUnknown(call_id=first, reason="r", content="c"))
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert [(end.call_id, end.outcome) for end in action.results] == [(second, "skipped")]


def test_an_error_does_not_skip_the_rest() -> None:
    story = Story().shift().hands()
    first, second = story.answer("", BASH, BASH)
    story.dispatch(first).result(first, outcome="error")
    assert decide(story.state(), story.now_us) == Dispatch((second,))


def test_an_interrupt_cancels_what_did_not_run_and_parks_for_a_person() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("", BASH)
    story.tell(UserInterrupt())
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert [(end.call_id, end.outcome) for end in action.results] == [(call, "cancelled")]
    story.tell(*action.results)
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert (action.fact.status, action.fact.reason) == ("parked", "person")
    story.tell(message())
    assert isinstance(decide(story.state(), story.now_us), AskModel)


def test_a_cancel_ends_the_session_whatever_else_is_wanted() -> None:
    story = Story().shift()
    story.tell(message(), UserCancel())
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert action.fact.status == "cancelled"


def test_the_turn_cap_parks_and_a_raise_goes_on() -> None:
    story = Story(limits=Limits(max_turns=1)).shift().hands()
    (call,) = story.answer("", BASH)
    story.dispatch(call).result(call)
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert (action.fact.status, action.fact.reason) == ("parked", "cap")
    story.tell(action.fact)
    assert is_idle(story.state(), story.now_us)
    story.tell(SessionUpdated(max_turns=2))
    assert not is_idle(story.state(), story.now_us)
    assert isinstance(decide(story.shift().state(), story.now_us), AskModel)


def test_the_token_line_parks_with_a_clear_reason() -> None:
    story = Story(limits=Limits(context_tokens=1_000)).shift()
    story.tell(message("x" * 8_000))
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert action.fact.reason == "context"
    assert "1000" in action.fact.detail


def test_a_failure_is_retried_after_its_delay_then_parks_until_later() -> None:
    story = Story(limits=Limits(max_attempts=2)).shift().fail("overloaded")
    action = decide(story.state(), story.now_us)
    assert isinstance(action, WaitUntil)
    assert decide(story.state(), action.at_us) == AskModel(
        inputs_through=len(story.events), attempt=2, model="scripted:x"
    )
    story.fail("overloaded", attempt=2)
    parked = decide(story.state(), story.now_us)
    assert isinstance(parked, End)
    assert parked.fact.reason == "provider"
    assert parked.fact.due_us is not None
    story.tell(parked.fact)
    assert is_idle(story.state(), story.now_us)
    assert not is_idle(story.state(), parked.fact.due_us)
    assert decide(story.shift().state(), parked.fact.due_us) == AskModel(
        inputs_through=len(story.events), attempt=3, model="scripted:x"
    )


def test_backoff_is_spread_between_a_second_and_a_bound_that_doubles() -> None:
    def delays_s(attempt: int) -> list[float]:
        failures = [Failure(at_us, attempt, "overloaded", "no", None, "m", "turn", 7) for at_us in range(1_000)]
        return [delay_s(each) for each in failures]

    for attempt in range(1, 30):
        bound_s = min(300.0, 2.0 ** (attempt - 1))
        found = delays_s(attempt)
        assert 1.0 <= min(found) <= max(found) <= bound_s
        assert sum(found) / len(found) == pytest.approx((1.0 + bound_s) / 2, rel=0.1), "evenly"
    assert delays_s(9) == delays_s(9), "the same failure has the same delay: any brain computes it again"


def test_retry_after_is_honoured_and_a_long_one_parks() -> None:
    short = Story().shift().fail("rate_limited", retry_after_s=7)
    assert decide(short.state(), short.now_us) == WaitUntil(short.now_us + 7 * SECOND_US)
    long = Story().shift().fail("rate_limited", retry_after_s=PARK_BEYOND_S + 1)
    action = decide(long.state(), long.now_us)
    assert isinstance(action, End)
    assert (action.fact.reason, action.fact.due_us) == ("provider", long.now_us + int((PARK_BEYOND_S + 1) * SECOND_US))


def test_a_failure_that_no_retry_can_mend_fails_the_session() -> None:
    story = Story().shift().fail("invalid_request")
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert action.fact.status == "failed"


def test_a_message_after_such_a_failure_gets_one_try() -> None:
    story = Story().shift().fail("invalid_request").tell(message())
    assert decide(story.state(), story.now_us) == AskModel(
        inputs_through=len(story.events), attempt=2, model="scripted:x"
    )
    story.fail("invalid_request", attempt=2)
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End)
    assert action.fact.status == "failed"


def test_a_released_shift_leaves_the_session_to_be_woken() -> None:
    story = Story().shift().tell(ShiftEnded(status="released"))
    assert not is_idle(story.state(), story.now_us)
