"""Sessions near their line, told as facts, and what is done about them."""

from __future__ import annotations

from typing import Any

from holdfast.facts.model import (
    ContextCompacted,
    ContextFailed,
    ContextReset,
    Handoff,
    ModelRequestEnd,
    ModelRequestStart,
    Purpose,
)
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.session.actions import Compact, Reset
from holdfast.session.decide import decide
from holdfast.session.state import State
from tests.session.story import SECOND_US, Story

BASH = "bash"


def limits(strategy: Any = "compaction", **more: Any) -> Limits:
    """A line of 4,000 tokens, of which 1,000 stay."""
    policy = {"line_tokens": 4_000, "keep_tokens": 1_000, "signs": False, **more}
    return Limits(context=ContextPolicy(strategy=strategy, **policy), max_attempts=9)


def worked(story: Story, turns: int, *, said: int = 2_000, printed: int = 400, name: str = "") -> Story:
    """So many turns: words, a command of its own, its output."""
    for _ in range(turns):
        number = len(story.events)
        (call,) = story.answer(f"{number} " + "s" * said, (BASH, {"command": f"do {name}{number}"}))
        story.dispatch(call).result(call, f"{number} " + "p" * printed)
    return story


def story_of(strategy: Any = "compaction", turns: int = 8, **more: Any) -> Story:
    """A session over its line."""
    return worked(Story(limits=limits(strategy, **more)).shift().hands(), turns)


def action_of(story: Story, after_s: float = 0.0) -> Any:
    """What the brain does next."""
    return decide(story.state(), story.now_us + int(after_s * SECOND_US))


def begin(story: Story, action: Compact | Reset) -> int:
    """The request of a compaction or a reset starts."""
    purpose: Purpose = "compaction" if isinstance(action, Compact) else "handoff"
    story.tell(
        ModelRequestStart(
            purpose=purpose,
            model=action.model,
            attempt=action.attempt,
            inputs_through=action.through_seq,
            max_output_tokens=10,
            through_seq=action.through_seq,
        )
    )
    return len(story.events)


def fails(story: Story, action: Any, kind: str = "timeout", retry_after_s: float | None = None) -> Story:
    """That request fails."""
    seq = begin(story, action)
    return story.tell(
        ModelRequestEnd(
            request_seq=seq, outcome="error", cost_pico=0, error_kind=kind, message="no", retry_after_s=retry_after_s
        )
    )


def useless(story: Story, action: Any) -> Story:
    """It is answered, and the answer is of no use."""
    seq = begin(story, action)
    purpose: Any = "compaction" if isinstance(action, Compact) else "handoff"
    story.tell(ContextFailed(request_seq=seq, purpose=purpose, reason="empty"))
    return story.tell(ModelRequestEnd(request_seq=seq, outcome="ok", stop_reason="end_turn"))


def succeeds(story: Story, action: Any, words: str = "what was done") -> Story:
    """It is answered, and takes effect."""
    seq = begin(story, action) if action.model else 0
    through, state = action.through_seq, story.state()
    if isinstance(action, Compact):
        fact: Any = ContextCompacted(
            request_seq=seq, from_seq=state.context.through_seq, through_seq=through, summary=words
        )
    else:
        handoff = Handoff(next=(words,))
        fact = ContextReset(cause=action.cause, through_seq=through, handoff=handoff, request_seq=seq)
    story.tell(fact)
    return story.tell(ModelRequestEnd(request_seq=seq, outcome="ok", stop_reason="end_turn")) if seq else story


def shapes(state: State) -> list[str]:
    """The kinds of items in the window."""
    return [type(item).__name__ for item in state.window]
