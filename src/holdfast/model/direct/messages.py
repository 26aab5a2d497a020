"""From our conversation to the messages of the client library.

What a provider wants back is given back to it alone: another one's reasoning, ids and details are dropped.
Reasoning that its own provider did not sign, because it was cut off, is dropped too; so is reasoning that
nothing followed, which no provider takes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.tools import ToolDefinition

from holdfast.model.base import ToolSpec
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


class Origin:
    """Whose words are given back whole: `provider` as our facts name it, `system` as the library does.

    `signs` says that the provider takes no reasoning back that it did not sign.
    """

    def __init__(self, provider: str, system: str, model: str, *, signs: bool) -> None:
        self.provider = provider
        self.system = system
        self.model = model
        self.signs = signs


def tools(specs: Iterable[ToolSpec]) -> list[ToolDefinition]:
    """The tools as they are: nobody but the brain judges their inputs, so no provider rewrites the schema."""
    return [
        ToolDefinition(
            name=spec.name, description=spec.description, parameters_json_schema=spec.input_schema, strict=False
        )
        for spec in specs
    ]


def conversation(
    system: str, messages: Sequence[Message], origin: Origin, *, mark_head: bool
) -> list[theirs.ModelMessage]:
    """The messages of a request. `mark_head` puts a cache mark right behind the first words: they are pinned."""
    ids = _call_ids(messages, origin)
    found: list[theirs.ModelMessage] = []
    for number, message in enumerate(messages):
        if message.role == "assistant":
            parts = _answer(message.parts, origin, ids)
            if parts:
                found.append(theirs.ModelResponse(parts=parts, provider_name=origin.system, model_name=origin.model))
        else:
            asked = _asked(message.parts, ids, mark=mark_head and number == 0)
            if asked:
                found.append(theirs.ModelRequest(parts=asked, instructions=system or None))
    return found


_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


def _call_ids(messages: Sequence[Message], origin: Origin) -> dict[str, str]:
    """Our call ids → what this provider is told: its own id, or ours in characters that every one takes."""
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    return {
        call.call_id: call.provider_id
        if call.provider_id and call.provider == origin.provider
        else f"call_{_PLAIN.sub('_', call.call_id)}"
        for call in calls
    }


def _answer(parts: Sequence[Part], origin: Origin, ids: dict[str, str]) -> list[theirs.ModelResponsePart]:
    """What the model said. One item of reasoning may be in several parts, of which the first is signed."""
    signed = {part.provider_id for part in parts if isinstance(part, ThinkingPart) and part.signature}
    found = [said for part in parts if (said := _said(part, origin, ids, signed)) is not None]
    while found and isinstance(found[-1], theirs.ThinkingPart):
        found.pop()
    return found


def _said(part: Part, origin: Origin, ids: dict[str, str], signed: Collection[str]) -> theirs.ModelResponsePart | None:
    match part:
        case TextPart():
            kept = _kept(part, origin)
            if not part.text and not kept.get("provider_details"):
                return None
            return theirs.TextPart(part.text, **kept)
        case ThinkingPart():
            trusted = part.signature or (part.provider_id and part.provider_id in signed)
            if part.provider != origin.provider or (origin.signs and not trusted):
                return None
            return theirs.ThinkingPart(part.text, signature=part.signature or None, **_kept(part, origin))
        case ToolCallPart():
            return theirs.ToolCallPart(part.name, part.input, ids[part.call_id], **_kept_call(part, origin))
        case _:
            return None


def _kept(part: TextPart | ThinkingPart, origin: Origin) -> dict[str, Any]:
    if part.provider != origin.provider:
        return {}
    return {
        "id": part.provider_id or None,
        "provider_name": origin.system,
        "provider_details": dict(part.details) or None,
    }


def _kept_call(part: ToolCallPart, origin: Origin) -> dict[str, Any]:
    """The details of a call hold the library's own two: the id of the item, and its details."""
    if part.provider != origin.provider:
        return {}
    return {
        "id": part.details.get("id"),
        "provider_name": origin.system,
        "provider_details": part.details.get("details"),
    }


def _asked(parts: Sequence[Part], ids: dict[str, str], *, mark: bool) -> list[theirs.ModelRequestPart]:
    """Results first: every provider wants them right behind their calls."""
    asked: list[theirs.ModelRequestPart] = []
    content: list[theirs.UserContent] = []
    for part in parts:
        match part:
            case ToolResultPart():
                asked.append(_result(part, ids))
            case TextPart(text=text) if text:
                content.append(text)
            case ImagePart():
                content.append(theirs.BinaryContent(part.data, media_type=part.media_type))
            case DocumentPart():
                content += _document(part)
            case _:
                pass
    if content:
        marked = [content[0], theirs.CachePoint(), *content[1:]] if mark else content
        asked.append(theirs.UserPromptPart(marked))
    return asked


def _result(part: ToolResultPart, ids: dict[str, str]) -> theirs.ToolReturnPart:
    wire_id = ids.get(part.call_id, f"call_{_PLAIN.sub('_', part.call_id)}")
    # Some providers refuse an empty result.
    content = part.content or "(no output)"
    return theirs.ToolReturnPart(part.name, content, wire_id, outcome="failed" if part.is_error else "success")


def _document(part: DocumentPart) -> list[theirs.UserContent]:
    """A text is told as one, by its name; anything else goes as a file."""
    name = part.name or "document"
    if told_as_text(part):
        text = part.data.decode("utf-8", "replace")
        return [f"<document name={name!r}>\n{text}\n</document>"]
    return [f"The file {name}:", theirs.BinaryContent(part.data, media_type=part.media_type)]
