"""The context that a model is shown."""

from __future__ import annotations

from holdfast.facts.base import Text
from holdfast.facts.model import AgentThinking
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolOutcomeUnknown
from holdfast.session.context.conversation import TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from holdfast.session.context.window import CUT_SHORT, build, needed
from tests.session.story import Story

BASH = ("bash", {"command": "ls"})


def test_the_head_holds_prompt_rules_and_goal_byte_for_byte() -> None:
    story = Story(pinned="keep\n\tthe tabs ")
    context = build(story.state(), story.bodies, "the prompt")
    assert context.system == "the prompt\n\nCommands have no network.\n\n# Rules of this project\n\nkeep\n\tthe tabs "
    assert context.messages[0].role == "user"
    assert context.messages[0].parts == (TextPart("the goal\n  as written"),)


def test_results_stand_next_to_their_calls_in_call_order_whatever_the_log_says() -> None:
    story = Story().shift().hands()
    first, second = story.answer("look", ("read", {"file_path": "a"}), ("read", {"file_path": "b"}))
    story.dispatch(first).dispatch(second)
    story.tell(UserMessage(content=(Text("in between"),)))
    story.result(second, "b's").result(first, "a's")
    _, said, results = build(story.state(), story.bodies, "").messages
    assert [type(part) for part in said.parts] == [TextPart, ToolCallPart, ToolCallPart]
    found = [part for part in results.parts if isinstance(part, ToolResultPart)]
    assert [(part.call_id, part.content) for part in found] == [(first, "a's"), (second, "b's")]
    assert results.parts[-1] == TextPart("in between")


def test_a_message_enters_at_the_request_that_took_it_in() -> None:
    story = Story().shift()
    seq = story.ask()
    story.tell(UserMessage(content=(Text("late"),)))
    assert [item.seq for item in story.state().pending] == [seq + 1]
    story.fail("overloaded")
    assert story.state().pending == []
    assert build(story.state(), story.bodies, "").messages[0].parts[-1] == TextPart("late")


def test_an_unknown_outcome_is_told_as_an_error() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("", BASH)
    story.dispatch(call).tell(ToolOutcomeUnknown(call_id=call, reason="r", content="look first"))
    part = build(story.state(), story.bodies, "").messages[-1].parts[0]
    assert part == ToolResultPart(call, "bash", "look first", True)


def test_thinking_goes_back_with_its_signature() -> None:
    story = Story().shift()
    seq = story.ask()
    story.tell(AgentThinking(request_seq=seq, text="hm", signature="sig"))
    assert build(story.state(), story.bodies, "").messages[1].parts == (ThinkingPart("hm", "sig"),)


def test_a_cut_answer_is_followed_by_a_word_to_go_on() -> None:
    story = Story().shift()
    story.answer("half", stop="max_tokens")
    assert build(story.state(), story.bodies, "").messages[-1].parts == (TextPart(CUT_SHORT),)


def test_needed_names_exactly_the_bodies_that_are_shown() -> None:
    story = Story().shift().hands()
    (call,) = story.answer("look", BASH)
    story.dispatch(call).result(call).tell(UserMessage(content=(Text("more"),)))
    state = story.state()
    bodies = {seq: story.bodies[seq] for seq in needed(state)}
    assert build(state, bodies, "p") == build(state, story.bodies, "p")


def test_the_digest_follows_the_content() -> None:
    one, two = Story(), Story(pinned="other")
    assert build(one.state(), one.bodies, "p").digest == build(one.state(), one.bodies, "p").digest
    assert build(one.state(), one.bodies, "p").digest != build(two.state(), two.bodies, "p").digest
