"""The context: what the model is shown, built from the state and the bodies it names. Pure.

The head is pinned: the system prompt, the rules and the goal stand first and byte-identical in every
context of a session (S17). Results stand next to their calls, whatever the log's order (S3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Fact, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.session.conversation import Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from holdfast.session.state import ResponseItem, State, UserItem

CUT_SHORT = "Your last response was cut at the output limit. Go on from there, in smaller steps."
"""Said to the model after a response that ran into the output limit without asking for anything."""


class Context(msgspec.Struct, frozen=True):
    """A built context. `digest` is SHA-256 hex over all of it, for the log."""

    system: str
    messages: tuple[Message, ...]
    digest: str


def needed(state: State) -> list[int]:
    """Sequence numbers of the bodies that `build` will ask for, in order of the context."""
    seqs: list[int] = []
    for item in state.window:
        if isinstance(item, UserItem):
            seqs.append(item.seq)
        else:
            seqs.extend(item.parts)
            seqs.extend(seq for seq in item.results if seq)
    seqs.extend(item.seq for item in state.pending)
    return seqs


def build(state: State, facts: Mapping[int, Fact], prompt: str) -> Context:
    """The context of the next request. `facts` has every body that `needed` names."""
    created = state.created
    assert created is not None
    system = "\n\n".join(part for part in (prompt, created.agent.system, _rules(created.rules)) if part)
    messages: list[Message] = [Message("user", (TextPart(created.goal),))]
    for item in state.window:
        if isinstance(item, UserItem):
            _user(messages, facts, item)
        else:
            _response(messages, facts, item)
    for item in state.pending:
        _user(messages, facts, item)
    merged = _alternating(messages)
    digest = hashlib.sha256(msgspec.json.encode((system, merged))).hexdigest()
    return Context(system, merged, digest)


def _rules(rules: str) -> str:
    return f"# Rules of this project\n\n{rules}" if rules else ""


def _user(messages: list[Message], facts: Mapping[int, Fact], item: UserItem) -> None:
    fact = facts[item.seq]
    text = text_of(fact.content) if isinstance(fact, UserMessage) else "(this message was erased)"
    messages.append(Message("user", (TextPart(text),)))


def _response(messages: list[Message], facts: Mapping[int, Fact], item: ResponseItem) -> None:
    parts: list[Part] = []
    calls: list[AgentToolUse] = []
    for seq in item.parts:
        match facts[seq]:
            case AgentThinking() as said:
                parts.append(ThinkingPart(said.text, said.signature, said.provider, said.provider_id, said.details))
            case AgentMessage() as said:
                parts.append(TextPart(text_of(said.content), said.provider, said.provider_id, said.details))
            case AgentToolUse() as call:
                calls.append(call)
                parts.append(
                    ToolCallPart(call.call_id, call.name, call.input, call.provider_id, call.provider, call.details)
                )
            case _:
                parts.append(TextPart("(this part was erased)"))
    if parts:
        messages.append(Message("assistant", tuple(parts)))
    if calls:
        results = [_result(call, facts.get(seq)) for call, seq in zip(calls, item.results, strict=True)]
        messages.append(Message("user", tuple(results)))
    elif item.stop_reason == "max_tokens":
        messages.append(Message("user", (TextPart(CUT_SHORT),)))


def _result(call: AgentToolUse, fact: Fact | None) -> ToolResultPart:
    match fact:
        case ToolResult():
            return ToolResultPart(call.call_id, call.name, fact.content, fact.outcome != "ok", call.provider_id)
        case ToolOutcomeUnknown():
            return ToolResultPart(call.call_id, call.name, fact.content, True, call.provider_id)
        case _:
            return ToolResultPart(call.call_id, call.name, "(this result was erased)", True, call.provider_id)


def _alternating(messages: list[Message]) -> tuple[Message, ...]:
    """Join neighbours of one role: providers want turns to alternate."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, merged[-1].parts + message.parts)
        else:
            merged.append(message)
    return tuple(merged)
