"""Sessions with a small line on a stage, and what their requests show."""

from __future__ import annotations

import json
from typing import Any

from holdfast.facts.model import Handoff
from holdfast.facts.session import ContextPolicy, Limits
from holdfast.model.base import ModelRequest
from holdfast.session.context.conversation import TextPart, ToolResultPart
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


def asked(stage: Stage, purpose: str) -> list[ModelRequest]:
    """The requests of one purpose."""
    return [request for request in stage.model.requests if request.purpose == purpose]


def note(words: str) -> dict[str, Any]:
    """A turn that leaves a note with these words everywhere."""
    return turn(json.dumps({name: [f"{words} {name}"] for name in Handoff.__struct_fields__}))


async def ended(stage: Stage) -> Any:
    """Run to the end, which has to be a good one."""
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done", outcome.ended.detail
    return outcome
