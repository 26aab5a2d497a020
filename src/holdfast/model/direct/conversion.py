"""Conversion of conversations and answers between Holdfast and pydantic-ai.

Provider data is returned only to its own provider: reasoning, ids, and details of another one are dropped. So is
reasoning without a signature where the provider signs, and reasoning that nothing follows, which no provider accepts.
An answer with a tool call stops for tool use, whatever its finish reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.models import StreamedResponse
from pydantic_ai.tools import ToolDefinition

from holdfast.errors import ModelError
from holdfast.facts.base import Usage
from holdfast.facts.model import StopReason
from holdfast.model.base import (
    Finish,
    PartDetails,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolSpec,
)
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
    """The provider of a request: `provider` is Holdfast's name for it, `system` the library's.

    `signs` is True if the provider accepts only reasoning that it signed.
    """

    def __init__(self, provider: str, system: str, model: str, *, signs: bool) -> None:
        self.provider = provider
        self.system = system
        self.model = model
        self.signs = signs


def tools(specs: Iterable[ToolSpec]) -> list[ToolDefinition]:
    """Declare tools with their schemas unchanged; the brain validates the inputs."""
    return [
        ToolDefinition(
            name=spec.name, description=spec.description, parameters_json_schema=spec.input_schema, strict=False
        )
        for spec in specs
    ]


def conversation(
    system: str, messages: Sequence[Message], origin: Origin, *, mark_head: bool
) -> list[theirs.ModelMessage]:
    """Convert a conversation. `mark_head` puts a cache mark after the first text, which is pinned."""
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
    """Map Holdfast's call ids to the provider's own, or to ids in characters that all providers accept."""
    calls = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    return {
        call.call_id: call.provider_id
        if call.provider_id and call.provider == origin.provider
        else f"call_{_PLAIN.sub('_', call.call_id)}"
        for call in calls
    }


def _answer(parts: Sequence[Part], origin: Origin, ids: dict[str, str]) -> list[theirs.ModelResponsePart]:
    """Convert a response. A reasoning item may have several parts, of which the first is signed."""
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
    """Restore the library's item id and details from the details of a call."""
    if part.provider != origin.provider:
        return {}
    return {
        "id": part.details.get("id"),
        "provider_name": origin.system,
        "provider_details": part.details.get("details"),
    }


def _asked(parts: Sequence[Part], ids: dict[str, str], *, mark: bool) -> list[theirs.ModelRequestPart]:
    """Convert a user message, with tool results first, since providers expect them right after their calls."""
    asked: list[theirs.ModelRequestPart] = []
    content: list[theirs.UserContent] = []
    for part in parts:
        match part:
            case ToolResultPart():
                wire_id = ids.get(part.call_id, f"call_{_PLAIN.sub('_', part.call_id)}")
                content_or_note = part.content or "(no output)"  # some providers refuse an empty result
                outcome: Any = "failed" if part.is_error else "success"
                asked.append(theirs.ToolReturnPart(part.name, content_or_note, wire_id, outcome=outcome))
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


def _document(part: DocumentPart) -> list[theirs.UserContent]:
    """Convert a document: text inline, anything else as a file."""
    name = part.name or "document"
    if told_as_text(part):
        text = part.data.decode("utf-8", "replace")
        return [f"<document name={name!r}>\n{text}\n</document>"]
    return [f"The file {name}:", theirs.BinaryContent(part.data, media_type=part.media_type)]


CUT = "{"
"""Arguments of a call that was cut off before they began: invalid JSON, so the call is malformed."""


@dataclass
class _Call:
    args: str = ""
    late: bool = False


@dataclass
class Reader:
    """A reader of one answer. `provider` is Holdfast's name for its source."""

    provider: str
    characters: int = 0
    _calls: dict[int, _Call] = field(default_factory=dict)
    _signed: dict[int, str] = field(default_factory=dict)
    _detailed: dict[int, PartDetails] = field(default_factory=dict)

    def read(self, event: object) -> Iterator[StreamPart]:
        """Convert one event to stream parts."""
        match event:
            case theirs.PartStartEvent(index=index, part=part):
                yield from self._begin(index, part)
            case theirs.PartDeltaEvent(index=index, delta=delta):
                yield from self._more(index, delta)
            case theirs.PartEndEvent(index=index, part=part):
                yield from self._details(index, part)

    def _begin(self, index: int, part: object) -> Iterator[StreamPart]:
        match part:
            case theirs.TextPart(content=text):
                yield from self._text(index, text)
            case theirs.ThinkingPart(content=text, signature=signature):
                yield from self._thinking(index, text, signature)
            case theirs.ToolCallPart(tool_name=name, tool_call_id=call_id, args=args):
                self._calls[index] = _Call()
                yield ToolCallStart(index, name, call_id)
                yield from self._arguments(index, args)

    def _more(self, index: int, delta: object) -> Iterator[StreamPart]:
        match delta:
            case theirs.TextPartDelta(content_delta=text):
                yield from self._text(index, text)
            case theirs.ThinkingPartDelta(content_delta=text, signature_delta=signature):
                yield from self._thinking(index, text or "", signature)
            case theirs.ToolCallPartDelta(args_delta=args):
                yield from self._arguments(index, args)

    def _text(self, index: int, text: str) -> Iterator[StreamPart]:
        if text:
            self.characters += len(text)
            yield TextDelta(text, index)

    def _thinking(self, index: int, text: str, signature: str | None) -> Iterator[StreamPart]:
        if text or signature:
            self.characters += len(text)
            self._signed[index] = signature or self._signed.get(index, "")
            yield ThinkingDelta(text, signature or "", index)

    def _arguments(self, index: int, args: str | dict[str, Any] | None) -> Iterator[StreamPart]:
        call = self._calls.get(index)
        if call is None or not args:
            return
        if isinstance(args, dict):
            call.late = True  # an object is streamed as text only when complete
        else:
            call.args += args
            self.characters += len(args)
            yield ToolCallDelta(index, args)

    def _details(self, index: int, part: object) -> Iterator[StreamPart]:
        details = _details_of(index, part, self.provider)
        if details is not None and self._detailed.get(index) != details:
            self._detailed[index] = details
            yield details

    def finish(self, stream: StreamedResponse, estimated_input_tokens: int) -> Iterator[StreamPart]:
        """Return the remaining parts and the finish. Raises `ModelError` of kind `bad_stream` for a cut answer."""
        raw = (stream.provider_details or {}).get("finish_reason")
        if stream.finish_reason is None and not raw:
            raise ModelError("bad_stream", "the answer was cut: the provider sent no finish reason")
        if stream.finish_reason == "error":
            raise ModelError("bad_stream", f"the provider could not finish its answer ({raw or 'error'})")
        cut = stream.finish_reason in ("length", "content_filter")
        parts = stream.get().parts
        for index, part in enumerate(parts):
            if isinstance(part, theirs.ThinkingPart) and part.signature and part.signature != self._signed.get(index):
                yield from self._thinking(index, "", part.signature)
            yield from self._details(index, part)
            if isinstance(part, theirs.ToolCallPart):
                yield from self._last_arguments(index, part, cut=cut)
        usage = _usage(stream) or Usage(estimated_input_tokens, self.characters // 3 + 1)
        yield Finish(self._stop_reason(stream), usage)

    def _last_arguments(self, index: int, part: theirs.ToolCallPart, *, cut: bool) -> Iterator[StreamPart]:
        call = self._calls.get(index)
        if call is None:
            return
        if call.late:
            args = part.args if isinstance(part.args, str) else json.dumps(part.args or {})
            yield ToolCallDelta(index, args)
        elif not call.args.strip():
            yield ToolCallDelta(index, CUT if cut else "{}")

    def _stop_reason(self, stream: StreamedResponse) -> StopReason:
        if self._calls:
            return "tool_use"
        if stream.finish_reason == "length":
            return "max_tokens"
        return "refusal" if stream.finish_reason == "content_filter" else "end_turn"


def _details_of(index: int, part: object, provider: str) -> PartDetails | None:
    match part:
        case theirs.TextPart(id=item_id, provider_details=details) if item_id or details:
            return PartDetails("text", provider, item_id or "", _plain(details), index)
        case theirs.ThinkingPart(id=item_id, provider_details=details):
            return PartDetails("thinking", provider, item_id or "", _plain(details), index)
        case theirs.ToolCallPart(id=item_id, provider_details=details):
            kept = {"id": item_id, "details": _plain(details)}
            return PartDetails("call", provider, "", {name: value for name, value in kept.items() if value}, index)
    return None


def _plain(details: dict[str, Any] | None) -> dict[str, Any]:
    """Convert details to plain JSON values, as the log stores them."""
    plain: dict[str, Any] = json.loads(json.dumps(details or {}, default=str))
    return plain


def _usage(stream: StreamedResponse) -> Usage | None:
    """Return the provider's token counts, if any. Cached tokens are not in `input_tokens` (S15)."""
    usage = stream.usage
    if not usage.input_tokens and not usage.output_tokens:
        return None
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    return Usage(max(0, usage.input_tokens - read - written), usage.output_tokens, read, written)
