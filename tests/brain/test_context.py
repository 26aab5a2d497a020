"""The life of a context through a whole brain: compaction, reset, signs, rules (S16, S17, S18)."""

from __future__ import annotations

from typing import Any

from holdfast.facts.context import ContextCompacted, ContextReset
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.model.base import ModelRequest
from holdfast.session.conversation import TextPart, ToolResultPart
from tests.brain.stage import Stage, turn


def limits(strategy: Any = "compaction", line: int = 4_000, keep: int = 1_000, **more: Any) -> Limits:
    """A small line; signs are off unless a test is about them."""
    policy = ContextPolicy(
        strategy=strategy, line_tokens=line, keep_tokens=keep, signs=more.pop("signs", False), **more
    )
    return Limits(context=policy)


def work(count: int, size: int = 2_400) -> list[dict[str, Any]]:
    """Turns that each run another command and say something long."""
    return [
        turn(f"Step {number}. " + "word " * (size // 5), ("bash", {"command": f"do {number}"}))
        for number in range(count)
    ]


def shown(request: ModelRequest) -> str:
    """Everything that a request shows."""
    parts = [part for message in request.messages for part in message.parts]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "\n".join([request.system, *texts, *(part.content for part in parts if isinstance(part, ToolResultPart))])


async def test_a_long_session_is_compacted_and_goes_on_to_its_end() -> None:
    stage = Stage([*work(20), turn("Done.")], limits=limits())
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    summaries = await stage.facts(ContextCompacted)
    assert len(summaries) >= 2
    assert all(later.from_seq == earlier.through_seq for earlier, later in zip(summaries, summaries[1:], strict=False))
    assert all(fact.tokens_after < fact.tokens_before for fact in summaries)
    turns = [request for request in stage.model.requests if request.purpose == "turn"]
    assert [request.responses for request in turns] == list(range(21))
    assert max(request.input_tokens_estimate for request in turns) < 5_000


async def test_a_long_session_is_reset_and_goes_on_to_its_end() -> None:
    stage = Stage([*work(20), turn("Done.")], limits=limits("reset"))
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    resets = await stage.facts(ContextReset)
    assert len(resets) >= 2
    assert all(fact.cause == "line" for fact in resets)
    assert [request.purpose for request in stage.model.requests].count("handoff") == len(resets)
