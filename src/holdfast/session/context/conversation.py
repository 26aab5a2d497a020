"""Messages of a model request, in a shape that every provider accepts."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class TextPart(msgspec.Struct, frozen=True, omit_defaults=True, tag="text"):
    """Text. `provider`, `provider_id`, and `details` are returned to that provider."""

    text: str
    provider: str = ""
    provider_id: str = ""
    details: dict[str, Any] = {}


class ThinkingPart(msgspec.Struct, frozen=True, omit_defaults=True, tag="thinking"):
    """The model's own reasoning, returned to it as its provider requires."""

    text: str
    signature: str = ""
    provider: str = ""
    provider_id: str = ""
    details: dict[str, Any] = {}


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """An image."""

    media_type: str
    data: bytes


class DocumentPart(msgspec.Struct, frozen=True, omit_defaults=True, tag="document"):
    """A file."""

    media_type: str
    data: bytes
    name: str = ""


AS_TEXT = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
"""Prefixes of the media types of files that the model receives as text."""


def told_as_text(part: DocumentPart) -> bool:
    """Return True if a file is shown to the model as text rather than as a file."""
    return part.media_type.startswith(AS_TEXT)


class ToolCallPart(msgspec.Struct, frozen=True, omit_defaults=True, tag="tool_call"):
    """A tool call in a response."""

    call_id: str
    name: str
    input: dict[str, Any]
    provider_id: str = ""
    provider: str = ""
    details: dict[str, Any] = {}


class ToolResultPart(msgspec.Struct, frozen=True, tag="tool_result"):
    """The result of a tool call, directly after the message with the call (S3)."""

    call_id: str
    name: str
    content: str
    is_error: bool = False
    provider_id: str = ""


Part = TextPart | ThinkingPart | ImagePart | DocumentPart | ToolCallPart | ToolResultPart


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]
