"""Turns of a fake model, and the conversation history that it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.session.context.conversation import Message, TextPart, ToolCallPart, ToolResultPart


@dataclass(frozen=True)
class Outcome:
    """Tool call with its result."""

    name: str
    input: Mapping[str, Any]
    ok: bool
    content: str


@dataclass(frozen=True)
class Turn:
    """Text of a response and its tool calls."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def characters(self) -> int:
        """Return the length of text and calls."""
        return len(self.text) + sum(len(name) + len(msgspec.json.encode(value).decode()) for name, value in self.calls)


def history(messages: tuple[Message, ...]) -> Iterator[Outcome | str]:
    """Return tool calls with their results, and texts of users after the first response, in order."""
    calls: dict[str, ToolCallPart] = {}
    begun = False
    for message in messages:
        for part in message.parts:
            if message.role == "assistant":
                begun = True
                if isinstance(part, ToolCallPart):
                    calls[part.call_id] = part
            elif isinstance(part, ToolResultPart) and part.call_id in calls:
                call = calls.pop(part.call_id)
                yield Outcome(call.name, call.input, not part.is_error, part.content)
            elif isinstance(part, TextPart) and begun:
                yield part.text
