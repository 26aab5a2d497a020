"""Context of a model request, built from the state and the bodies it names. Pure.

The head is pinned: the system prompt, the rules, the goal, and the criteria come first and are byte-identical in every
context of a session (S17). Results come directly after their calls, whatever the log's order (S3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Block, Content, Document, Fact, Image, Text, text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated, SessionForked
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.context.conversation import (
    DocumentPart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from holdfast.session.context.notes import FORKED_CALL, left_out, note_of, result_text
from holdfast.session.state import Call, Item, PostedItem, ResponseItem, State, SummaryItem


def real(state: State, estimated: int) -> int:
    """Correct an estimate by the measured sizes of earlier requests."""
    return estimated * state.context.scale_milli // 1_000


def line_tokens(state: State) -> int:
    """Return the size at which the context is renewed: its policy's, the one at which the session parks, or a learned
    one.
    """
    line = min(state.limits.context.line_tokens, state.limits.context_tokens)
    return min(line, state.context.learned_tokens) if state.context.learned_tokens else line


def inputs(state: State) -> list[PostedItem]:
    """Return the pending messages that the next request includes, in order; the others wait for the request after it.

    If all of them together would park the session, as many as fit are included; at least one when everything before has
    been answered.
    """
    most = state.limits.context_tokens
    if real(state, state.window_tokens + sum(item.tokens for item in state.pending)) <= most:
        return state.pending
    line = most if state.limits.context.strategy == "off" else line_tokens(state)
    tokens, taken = state.window_tokens, list[PostedItem]()
    least = 0 if state.window and isinstance(state.window[-1], PostedItem) else 1
    for item in state.pending:
        tokens += item.tokens
        if len(taken) >= least and real(state, tokens) > line:
            break
        taken.append(item)
    return taken


def inputs_through(state: State) -> int:
    """Return the last position that the next request shows."""
    taken = len(inputs(state))
    return state.seq if taken == len(state.pending) else state.pending[taken].seq - 1


def left_over(state: State, call: Call) -> bool:
    """Return True if the request behind a call left out messages: while it did, no call waits."""
    request_seq = int(call.call_id.partition(".")[0])
    return any(item.seq < request_seq for item in state.pending)


def arrived(state: State, call: Call) -> bool:
    """Return True if an event ends a waiting call."""
    return left_over(state, call) or any(item.seq > call.seq for item in state.pending)


CUT_SHORT = "Your last response was cut at the output limit. Go on from there, in smaller steps."
"""Note to the model after a response that reached the output limit without a call."""


class Context(msgspec.Struct, frozen=True):
    """A built context. `digest` is the SHA-256 hex over all of it, for the log."""

    system: str
    messages: tuple[Message, ...]
    digest: str


def needed(state: State) -> list[int]:
    """Return the positions of the bodies that `build` reads, in the order of the context."""
    seqs: list[int] = []
    for item in state.window:
        if isinstance(item, ResponseItem):
            seqs.extend(item.parts)
            seqs.extend(seq for seq in item.results if seq)
        else:
            seqs.append(item.seq)
    seqs.extend(item.seq for item in inputs(state))
    return seqs


def build(state: State, facts: Mapping[int, Fact], prompt: str) -> Context:
    """Build the context of the next request. `facts` has every body that `needed` names."""
    created = state.created
    assert created is not None
    system, goal = head(created, prompt)
    messages = [Message("user", (TextPart(goal),)), *conversation([*state.window, *inputs(state)], facts)]
    merged = alternating(messages)
    digest = hashlib.sha256(msgspec.json.encode((system, merged))).hexdigest()
    return Context(system, merged, digest)


def head(created: SessionCreated, prompt: str) -> tuple[str, str]:
    """Return the pinned head: the system text, and the beginning of every conversation (S17)."""
    rules = f"# Rules of this project\n\n{created.rules}" if created.rules else ""
    system = "\n\n".join(part for part in (prompt, network(created), created.agent.system, rules) if part)
    if not created.criteria:
        return system, created.goal
    criteria = "\n".join(f"{number}. {text}" for number, text in enumerate(created.criteria, 1))
    return system, f"{created.goal}\n\n# It is done when\n\n{criteria}"


def network(created: SessionCreated) -> str:
    """Describe the network access of a session's tools at its creation; empty for an agent that runs no commands."""
    if "bash" not in created.agent.tools:
        return ""
    policy = created.egress
    hosts = [place.host for place in policy.allow] + ["the package registries"] * policy.registries
    if not hosts:
        return "Commands have no network."
    return f"Commands can reach {', '.join(hosts)}, and no other host. A person can change this while you work."


def conversation(items: list[Item], facts: Mapping[int, Fact]) -> list[Message]:
    """Return the events as messages in order, not yet alternating."""
    messages: list[Message] = []
    for item in items:
        if isinstance(item, ResponseItem):
            _response(messages, facts, item)
            continue
        if isinstance(item, SummaryItem) and item.dropped_seq:
            messages.append(Message("user", (TextPart(left_out(item.dropped_seq)),)))
        messages.append(Message("user", _posted(facts.get(item.seq))))
    return messages


def _posted(fact: Fact | None) -> tuple[Part, ...]:
    if isinstance(fact, UserMessage):
        return _parts(fact.content)
    note = note_of(fact) if fact is not None else ""
    return (TextPart(note or "(this message was erased)"),)


def _parts(content: Content) -> tuple[Part, ...]:
    return tuple(_part(block) for block in content) or (TextPart("(an empty message)"),)


def _part(block: Block) -> Part:
    match block:
        case Text(text=text):
            return TextPart(text)
        case Image(media_type=media_type, data=data):
            return ImagePart(media_type, data)
        case Document(media_type=media_type, data=data, name=name):
            return DocumentPart(media_type, data, name)


def _response(messages: list[Message], facts: Mapping[int, Fact], item: ResponseItem) -> None:
    parts: list[Part] = []
    calls: list[AgentToolUse] = []
    for seq in item.parts:
        match facts.get(seq):
            case AgentThinking() as fact:
                thinking = ThinkingPart(fact.text, fact.signature, fact.provider, fact.provider_id, fact.details)
                parts.append(thinking)
            case AgentMessage() as fact:
                parts.append(TextPart(text_of(fact.content), fact.provider, fact.provider_id, fact.details))
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
            return ToolResultPart(call.call_id, call.name, result_text(fact), fact.outcome != "ok", call.provider_id)
        case ToolOutcomeUnknown():
            return ToolResultPart(call.call_id, call.name, fact.content, True, call.provider_id)
        case SessionForked():
            return ToolResultPart(call.call_id, call.name, FORKED_CALL, True, call.provider_id)
        case _:
            return ToolResultPart(call.call_id, call.name, "(this result was erased)", True, call.provider_id)


def alternating(messages: list[Message]) -> tuple[Message, ...]:
    """Join adjacent messages of one role: providers require alternating turns."""
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = Message(message.role, merged[-1].parts + message.parts)
        else:
            merged.append(message)
    return tuple(merged)
