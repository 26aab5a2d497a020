"""Assembly of a model response from its streamed parts. An unfinished response causes no action (S13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.facts import bounded_json
from holdfast.facts.base import Text
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.union import AnyFact
from holdfast.ids import call_id
from holdfast.model.base import Finish, PartDetails, StreamPart, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart


@dataclass
class _Block:
    kind: str
    index: int = -1
    name: str = ""
    provider_id: str = ""
    signature: str = ""
    provider: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)

    def joined(self) -> str:
        return "".join(self.text)


class Response:
    """A response while it streams. The last part sets `finish`; without it the response is incomplete."""

    def __init__(self) -> None:
        self.finish: Finish | None = None
        self._blocks: list[_Block] = []

    def add(self, part: StreamPart) -> None:
        """Add the next part."""
        match part:
            case TextDelta(text=text, block=number):
                self._open("text", number).text.append(text)
            case ThinkingDelta(text=text, signature=signature, block=number):
                block = self._open("thinking", number)
                block.text.append(text)
                block.signature = signature or block.signature
            case ToolCallStart(index=index, name=name, provider_id=provider_id):
                self._blocks.append(_Block("call", index, name, provider_id))
            case ToolCallDelta(index=index, fragment=fragment):
                self._call(index).text.append(fragment)
            case PartDetails():
                self._detail(part)
            case Finish():
                self.finish = part

    def _detail(self, part: PartDetails) -> None:
        if part.kind == "call":
            block = self._call(part.index)
        elif part.index >= 0:
            block = self._open(part.kind, part.index)
        else:
            latest = [each for each in self._blocks if each.kind == part.kind]
            block = latest[-1] if latest else self._open(part.kind)
        block.provider, block.details = part.provider, {**block.details, **part.details}
        block.provider_id = part.provider_id or block.provider_id

    def _open(self, kind: str, number: int = -1) -> _Block:
        """Return the block of that kind and number; without a number, the current one."""
        if number >= 0:
            numbered = (each for each in self._blocks if each.kind == kind and each.index == number)
            block = next(numbered, None)
            if block is None:
                block = _Block(kind, number)
                self._blocks.append(block)
            return block
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.kind != kind or last.signature:
            last = _Block(kind)
            self._blocks.append(last)
        return last

    def _call(self, index: int) -> _Block:
        for block in self._blocks:
            if block.kind == "call" and block.index == index:
                return block
        block = _Block("call", index)
        self._blocks.append(block)
        return block

    def text(self) -> str:
        """Return its text, without reasoning and calls."""
        return "".join(block.joined() for block in self._blocks if block.kind == "text")

    def characters(self) -> int:
        """Return the number of characters received, to estimate the cost."""
        return sum(len(piece) for block in self._blocks for piece in block.text)

    def facts(self, request_seq: int) -> list[AnyFact]:
        """Return the facts of a complete response, in order."""
        facts: list[AnyFact] = []
        calls = 0
        for block in self._blocks:
            if block.kind == "call":
                facts.append(_tool_use(block, request_seq, calls))
                calls += 1
            elif block.kind == "thinking":
                facts.append(_thinking(block, request_seq))
            elif block.joined() or block.details:
                facts.append(_message(block, request_seq))
        return facts

    def finished_part(self, request_seq: int) -> list[AnyFact]:
        """Return the part of an interrupted response to keep: text, no calls, no unsigned thinking (S14)."""
        return [
            fact
            for fact in self.facts(request_seq)
            if isinstance(fact, AgentMessage) or (isinstance(fact, AgentThinking) and fact.signature)
        ]


def _thinking(block: _Block, request_seq: int) -> AgentThinking:
    return AgentThinking(
        request_seq=request_seq,
        text=block.joined(),
        signature=block.signature,
        provider=block.provider,
        provider_id=block.provider_id,
        details=block.details,
    )


def _message(block: _Block, request_seq: int) -> AgentMessage:
    return AgentMessage(
        request_seq=request_seq,
        content=(Text(block.joined()),),
        provider=block.provider,
        provider_id=block.provider_id,
        details=block.details,
    )


def _tool_use(block: _Block, request_seq: int, index: int) -> AgentToolUse:
    text = block.joined()
    value, malformed = _arguments(text)
    return AgentToolUse(
        request_seq=request_seq,
        call_id=call_id(request_seq, index),
        name=block.name,
        input=value,
        provider_id=block.provider_id,
        malformed=malformed,
        provider=block.provider,
        details=block.details,
    )


def _arguments(text: str) -> tuple[dict[str, Any], str]:
    if not text.strip():
        return {}, ""
    try:
        value = bounded_json.decode(text)
    except msgspec.DecodeError:
        return {}, text
    return (value, "") if isinstance(value, dict) else ({}, text)
