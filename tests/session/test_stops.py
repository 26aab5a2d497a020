"""What an interrupt holds up, and what ends it (S14)."""

from __future__ import annotations

import pytest

from holdfast.facts.base import Text, Usage
from holdfast.facts.model import AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import UserInterrupt, UserMessage
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.union import AnyFact
from holdfast.session.actions import AskModel, End, EndCalls
from holdfast.session.decide import decide
from tests.session.story import Story

NOW_US = 10**15
GO_ON = UserMessage(content=(Text("go on"),))


def _after(*facts: AnyFact) -> object:
    story = Story().shift().tell(*facts)
    return decide(story.state(), NOW_US)


@pytest.mark.parametrize(
    "between",
    [
        (ShiftEnded(status="released"),),
        (ShiftEnded(status="parked", reason="person"), SessionUpdated(max_turns=9)),
        (SessionUpdated(budget_pico=5),),
    ],
)
def test_an_interrupt_outlives_its_shift_and_a_changed_limit(between: tuple[AnyFact, ...]) -> None:
    story = Story().shift().tell(UserInterrupt(), *between).shift()
    action = decide(story.state(), NOW_US)
    assert isinstance(action, End)
    assert action.fact.reason == "person"


def test_a_later_message_ends_an_interrupt() -> None:
    assert isinstance(_after(UserInterrupt(), GO_ON), AskModel)


def test_an_earlier_message_does_not() -> None:
    assert isinstance(_after(GO_ON, UserInterrupt()), End)


def test_a_message_right_behind_an_interrupt_does_not_save_the_calls() -> None:
    start = ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=2, max_output_tokens=10)
    use = AgentToolUse(request_seq=3, call_id="3.0", name="bash", input={"command": "x"})
    end = ModelRequestEnd(request_seq=3, outcome="ok", usage=Usage(1, 1), cost_pico=0, stop_reason="tool_use")
    action = _after(start, use, end, UserInterrupt(), GO_ON)
    assert isinstance(action, EndCalls)
    assert [result.outcome for result in action.results] == ["cancelled"]
    result, *_ = action.results
    assert isinstance(_after(start, use, end, UserInterrupt(), GO_ON, result), AskModel)
