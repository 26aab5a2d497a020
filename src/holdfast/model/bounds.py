"""The most tokens that a request can be: a bound, not an estimate, since money is held by it (S15).

Every tokenizer in use works on bytes or falls back to them, so a text is never more tokens than it has bytes
of UTF-8. What a provider adds beside our text is bounded by a fixed amount, and by some tokens for each
message, part and tool. A picture costs by its pixels and a document by its pages, which their bytes do not
tell; both are bounded by what the providers take at most. The context window of a model is no bound here: the
lists that tell it are late when it grows.
"""

from __future__ import annotations

import msgspec

from holdfast.model.base import ModelRequest
from holdfast.session.context.conversation import (
    DocumentPart,
    ImagePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    told_as_text,
)

FIXED_TOKENS = 2_000
"""What a provider puts around a request: the prompt that explains tools, and its own framing."""

PIECE_TOKENS = 64
"""What it puts around each message, part and tool."""

IMAGE_TOKENS = 20_000
"""More than any provider counts for one picture."""

DOCUMENT_TOKENS = 1_000_000
"""As much as the largest context window in use takes."""


def most_input_tokens(request: ModelRequest) -> int:
    """The most input tokens that a provider can count for this request."""
    parts = [part for message in request.messages for part in message.parts]
    pieces = len(request.messages) + len(parts) + len(request.tools) + 1
    tokens = FIXED_TOKENS + pieces * PIECE_TOKENS + _bytes(request.system)
    tokens += len(msgspec.json.encode(request.tools))
    if request.output_schema is not None:
        tokens += len(msgspec.json.encode(request.output_schema)) * 2  # as a parameter, and told in words
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
