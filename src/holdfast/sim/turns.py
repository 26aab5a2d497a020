"""Turns of a fake model, and the history of a conversation that it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.session.conversation import Message, TextPart, ToolCallPart, ToolResultPart


@dataclass(frozen=True)
class Outcome:
    """A tool call with its result."""

    name: str
    input: Mapping[str, Any]
    ok: bool
    content: str


@dataclass(frozen=True)
class Turn:
    """What to say and to ask for."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    def characters(self) -> int:
        """How long it is."""
        return len(self.text) + sum(len(name) + len(msgspec.json.encode(value).decode()) for name, value in self.calls)


def history(messages: tuple[Message, ...]) -> Iterator[Outcome | str]:
    """Calls with their results, and what a person said after the work had begun, in order."""
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
