"""What a check needs of a model, and of whoever answers behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from holdfast.model.base import Model, ModelRequest, ToolSpec
from holdfast.session.context.conversation import Message, TextPart


class Said(NamedTuple):
    """An answer: words, reasoning, calls as name and input."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


class Rig(Protocol):
    """A model with a price, and the one who answers behind it."""

    @property
    def model(self) -> Model:
        """The model under test."""
        ...

    def answers(self, *said: Said) -> None:
        """From now on, requests are answered with these, one after the other."""
        ...

    def fails(self) -> None:
        """The next request fails, in a way that passes."""
        ...

    def asked(self) -> int:
        """How many requests came since the last `answers`."""
        ...


Check = Callable[[Rig], Awaitable[None]]

BASH = ToolSpec(
    "bash", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
)


def request(responses: int = 0, attempt: int = 1) -> ModelRequest:
    """A request for the answer of that number."""
    messages = (Message("user", (TextPart("the goal"),)),)
    return ModelRequest("turn", "the prompt", messages, (BASH,), 4_096, responses, attempt, 100)
