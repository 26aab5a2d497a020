"""The door to models: what is asked, what streams back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from holdfast.facts.base import Usage
from holdfast.facts.model import Purpose, StopReason
from holdfast.session.context.conversation import Message


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as the model is told of it. `input_schema` is JSON schema."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    """One attempt. `responses` counts the responses of this purpose already in the session's log,
    `attempt` the tries since the last of them, from 1. With `output_schema`, a JSON schema, the whole text
    of the answer is one JSON value of it, and no tool is called.
    """

    purpose: Purpose
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int
    responses: int
    attempt: int
    input_tokens_estimate: int = 0
    output_schema: dict[str, Any] | None = None
    thinking: Literal["", "off", "low", "medium", "high"] = ""


class TextDelta(msgspec.Struct, frozen=True):
    """More words. `block` numbers the block they belong to in the response; -1 says the latest of its kind."""

    text: str
    block: int = -1


class ThinkingDelta(msgspec.Struct, frozen=True):
    """More reasoning; `signature` comes with the last piece, if the provider signs. `block` is as in `TextDelta`."""

    text: str
    signature: str = ""
    block: int = -1


class ToolCallStart(msgspec.Struct, frozen=True):
    """A call begins: its name is known, its arguments are not. Hands may be made ready now (S13)."""

    index: int
    name: str
    provider_id: str = ""


class ToolCallDelta(msgspec.Struct, frozen=True):
    """More of the arguments' JSON text."""

    index: int
    fragment: str


class PartDetails(msgspec.Struct, frozen=True):
    """What the provider wants back with a block, beside its text (S13).

    `index` is the block's: that of a call, the `block` of words or reasoning, -1 for the latest of that
    kind. A block that has no text yet begins with it. It may come at any time before the finish; the
    details of a later one are added to those of an earlier one.
    """

    kind: Literal["text", "thinking", "call"]
    provider: str
    provider_id: str = ""
    details: dict[str, Any] = {}
    index: int = -1


class Finish(msgspec.Struct, frozen=True):
    """The last part of a whole response. A stream without it is an error (`bad_stream`).

    Set `counted` to False when the model does not know its usage, which is then recorded as unknown.
    """

    stop_reason: StopReason
    usage: Usage
    counted: bool = True


StreamPart = TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | PartDetails | Finish


class Model(Protocol):
    """A model that can be asked. Money is in pico-dollars; None says that it has no known price."""

    name: str

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """The most that this request can cost (S15)."""
        ...

    def cost_pico(self, usage: Usage) -> int | None:
        """What that usage costs."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Ask, and yield what comes. Raises `ModelError`. Closing the iterator abandons the request."""
        ...
