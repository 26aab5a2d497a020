"""The model interface: requests, streamed parts, and an upper bound on input tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from holdfast.facts.base import Usage
from holdfast.facts.model import Purpose, StopReason
from holdfast.session.context.conversation import (
    DocumentPart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    told_as_text,
)


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool declared to the model. `input_schema` is a JSON schema."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(msgspec.Struct, frozen=True):
    """One attempt at a response. `responses` counts the responses of this purpose in the session's log, `attempt` the
    tries since the last of them, from 1. With `output_schema`, a JSON schema, the whole text of the response is one
    matching JSON value, and no tool is called.
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
    """A piece of text. `block` is the number of its block in the response; -1 is the latest of its kind."""

    text: str
    block: int = -1


class ThinkingDelta(msgspec.Struct, frozen=True):
    """A piece of reasoning. A signing provider sends `signature` with the last one. `block` is as in `TextDelta`."""

    text: str
    signature: str = ""
    block: int = -1


class ToolCallStart(msgspec.Struct, frozen=True):
    """The start of a tool call, with its name but no arguments yet. Hands can be prepared now (S13)."""

    index: int
    name: str
    provider_id: str = ""


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of the arguments' JSON text."""

    index: int
    fragment: str


class PartDetails(msgspec.Struct, frozen=True):
    """Data of a block that the provider expects back with its text (S13).

    `index` is that of a call, or the `block` of text or reasoning; -1 is the latest of that kind. Details can begin a
    block that has no text yet. They may come at any time before the finish; later ones are added to earlier ones.
    """

    kind: Literal["text", "thinking", "call"]
    provider: str
    provider_id: str = ""
    details: dict[str, Any] = {}
    index: int = -1


class Finish(msgspec.Struct, frozen=True):
    """The last part of a complete response. A stream without it is an error (`bad_stream`).

    `counted` is False if the model does not know its usage, which is then recorded as unknown.
    """

    stop_reason: StopReason
    usage: Usage
    counted: bool = True


StreamPart = TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | PartDetails | Finish


class Model(Protocol):
    """A model. Money is in pico-dollars; None means that the price is unknown."""

    name: str

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Return the largest possible cost of a request (S15)."""
        ...

    def cost_pico(self, usage: Usage) -> int | None:
        """Return the cost of a usage."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Send a request and yield its parts. Raises `ModelError`. Closing the iterator abandons the request."""
        ...


FIXED_TOKENS = 2_000
"""Tokens that a provider adds to a request: its tool prompt and framing."""

PIECE_TOKENS = 64
"""Tokens that a provider adds to each message, part, and tool."""

IMAGE_TOKENS = 20_000
"""More tokens than any provider counts for an image."""

DOCUMENT_TOKENS = 1_000_000
"""The largest context window in use."""


def most_input_tokens(request: ModelRequest) -> int:
    """Return an upper bound, not an estimate, of a request's input tokens, since money is reserved for it (S15).

    Tokenizers work on bytes or fall back to them, so a text never has more tokens than bytes of UTF-8. Provider
    overhead is bounded by fixed amounts. Images cost by pixels and documents by pages, so both are bounded by what
    providers accept. The context window is no bound, since lists of them are out of date.
    """
    parts = [part for message in request.messages for part in message.parts]
    pieces = len(request.messages) + len(parts) + len(request.tools) + 1
    tokens = FIXED_TOKENS + pieces * PIECE_TOKENS + _bytes(request.system)
    tokens += len(msgspec.json.encode(request.tools))
    if request.output_schema is not None:
        tokens += len(msgspec.json.encode(request.output_schema)) * 2  # as a parameter and in the prompt
    return tokens + sum(_part(part) for part in parts)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _part(part: Part) -> int:
    match part:
        case TextPart():
            return _bytes(part.text) + _details(part.details)
        case ThinkingPart():
            return _bytes(part.text) + _bytes(part.signature) + _details(part.details)
        case ToolCallPart():
            # JSON inside JSON: each quote and backslash may be escaped once more.
            return len(msgspec.json.encode(part.input)) * 2 + _bytes(part.name) + _details(part.details)
        case ToolResultPart():
            return len(msgspec.json.encode(part.content))
        case ImagePart():
            return IMAGE_TOKENS
        case DocumentPart():
            return len(part.data) * 3 if told_as_text(part) else max(DOCUMENT_TOKENS, len(part.data))


def _details(details: dict[str, object]) -> int:
    return len(msgspec.json.encode(details)) if details else 0
