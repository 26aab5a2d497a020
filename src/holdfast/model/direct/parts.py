"""From the events of the client library to stream parts, and the judgement whether an answer is whole.

An answer is judged by its parts, not by the word it ends with: where a call stands, it wants tools, whatever
the provider calls that. A call whose arguments never came is told with an open brace, so that nobody takes it
for one without arguments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.models import StreamedResponse

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
)

CUT = "{"
"""The arguments of a call that was cut off before they began: no JSON, so the call is malformed."""


@dataclass
class _Call:
    args: str = ""
    late: bool = False


@dataclass
class Reader:
    """Reads one answer. `provider` is what our facts call its source."""

    provider: str
    characters: int = 0
    _calls: dict[int, _Call] = field(default_factory=dict)
    _signed: dict[int, str] = field(default_factory=dict)
    _detailed: dict[int, PartDetails] = field(default_factory=dict)

    def read(self, event: object) -> Iterator[StreamPart]:
        """The parts of one event."""
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
            call.late = True  # pieces of an object cannot be told as text before it is whole
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
        """What is left to tell, and the finish. Raises `ModelError` of kind `bad_stream` without an end."""
        raw = (stream.provider_details or {}).get("finish_reason")
        if stream.finish_reason is None and not raw:
            raise ModelError("bad_stream", "the answer ended in the middle: the provider never said that it was done")
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
    """Details as JSON has them, since that is how the log keeps them."""
    plain: dict[str, Any] = json.loads(json.dumps(details or {}, default=str))
    return plain


def _usage(stream: StreamedResponse) -> Usage | None:
    """The tokens as the provider counted them; None when it did not. Cached ones are not in `input_tokens` (S15)."""
    usage = stream.usage
    if not usage.input_tokens and not usage.output_tokens:
        return None
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    return Usage(max(0, usage.input_tokens - read - written), usage.output_tokens, read, written)
