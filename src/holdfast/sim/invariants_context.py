"""Invariants of what the model is shown and of what is made of its answers (S3, S13, S14, S17)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.tool import ToolResult
from holdfast.facts.user import UserMessage
from holdfast.session.conversation import Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from holdfast.session.window import CUT_SHORT
from holdfast.sim.doors import PROMPT
from holdfast.sim.invariants_history import History, RequestHistory
from holdfast.sim.world_record import Served


def requests_are_logged_first(history: History) -> Iterator[str]:
    """S13: the model is asked only for a request that the log has, once for each."""
    starts = {request.start.seq: request for request in history.requests}
    asked: set[int] = set()
    for served in _served(history):
        request = starts.get(served.start_seq)
        if request is None or served.start_seq > served.head:
            yield f"{served.who} asked the model for a request that the log does not have"
            continue
        if served.start_seq in asked:
            yield f"the request at {served.start_seq} went to the model twice"
        asked.add(served.start_seq)
        named = (request.number, request.fact.attempt, request.fact.max_output_tokens)
        sent = (served.request.responses, served.request.attempt, served.request.max_output_tokens)
        if named != sent:
            yield f"the request at {served.start_seq} is {named} in the log and {sent} at the model"
        if request.fact.inputs_through != served.start_seq - 1:
            yield f"the request at {served.start_seq} takes in {request.fact.inputs_through}, not all before it"


def _served(history: History) -> list[Served]:
    return [each for each in history.world.record.served if each.session_id == history.session.session_id]


def head_is_pinned(history: History) -> Iterator[str]:
    """S17: prompt, rules and goal stand byte-identical at the head of every context."""
    created = history.created
    rules = f"# Rules of this project\n\n{created.rules}" if created.rules else ""
    system = "\n\n".join(part for part in (PROMPT, created.agent.system, rules) if part)
    for served in _served(history):
        first = served.request.messages[0]
        if served.request.system != system:
            yield f"the system prompt of the request at {served.start_seq} is another one"
        if first.role != "user" or first.parts[0] != TextPart(created.goal):
            yield f"the context of the request at {served.start_seq} does not begin with the goal"


def context_is_what_happened(history: History) -> Iterator[str]:
    """S3, S7, S12: the context holds each message once, each response, and each result next to its call, in order."""
    for served in _served(history):
        messages = _expected(history, served.start_seq)
        if messages != list(served.request.messages):
            yield f"the context of the request at {served.start_seq} is not what happened before it"


def _expected(history: History, start_seq: int) -> list[Message]:
    out: list[tuple[str, list[Part]]] = [("user", [TextPart(history.created.goal)])]

    def add(role: str, parts: list[Part]) -> None:
        if parts and out[-1][0] == role:
            out[-1][1].extend(parts)
        elif parts:
            out.append((role, parts))

    taken = 0
    for request in history.requests:
        if request.start.seq > start_seq:
            break
        through = request.start.seq - 1
        fresh = [event for event in history.messages if taken < event.seq <= through]
        add("user", [TextPart(_text(event)) for event in fresh])
        taken = through
        if request.start.seq < start_seq:
            add("assistant", [_part(event) for event in request.parts])
            add("user", _answers(request))
    return [Message(role, tuple(parts)) for role, parts in out]  # type: ignore[arg-type]


def _text(event: Event) -> str:
    assert isinstance(event.fact, UserMessage)
    return text_of(event.fact.content)


def _part(event: Event) -> Part:
    match event.fact:
        case AgentThinking() as fact:
            return ThinkingPart(fact.text, fact.signature)
        case AgentMessage() as fact:
            return TextPart(text_of(fact.content))
        case AgentToolUse() as fact:
            return ToolCallPart(fact.call_id, fact.name, fact.input, fact.provider_id)
        case _:
            raise AssertionError(event.type)


def _answers(request: RequestHistory) -> list[Part]:
    parts: list[Part] = []
    for call in request.calls:
        for _, end in call.ends[:1]:
            wrong = not (isinstance(end, ToolResult) and end.outcome == "ok")
            fact = call.fact
            parts.append(ToolResultPart(fact.call_id, fact.name, end.content, wrong, fact.provider_id))
    if request.end is not None and request.end.outcome == "ok" and request.end.stop_reason == "max_tokens":
        parts = parts or [TextPart(CUT_SHORT)]
    return parts


def only_whole_responses_count(history: History) -> Iterator[str]:
    """S13, S14: a whole response is logged as it was said; of another no call is kept and no unsigned thinking."""
    for request in history.requests:
        end = request.end
        said = _said(history, request)
        logged = [_logged(event) for event in request.parts]
        at = request.start.seq
        if end is not None and end.outcome == "ok":
            if logged != said:
                yield f"the response to the request at {at} is not what the model said"
        elif end is None or end.outcome != "cancelled":
            if logged:
                yield f"the request at {at} brought no response, and parts of one are in the log"
        elif not all(_is_kept(part, said) for part in logged):
            yield f"of the interrupted response to the request at {at} too much is kept"


def _said(history: History, request: RequestHistory) -> list[tuple[Any, ...]]:
    turn = history.session.script.turn(request.number)
    said: list[tuple[Any, ...]] = []
    if turn.thinking:
        said.append(("thinking", turn.thinking, turn.signature))
    if turn.text:
        said.append(("text", turn.text))
    for call in turn.calls:
        said.append(("call", call.name, *_arguments(call.arguments)))
    return said


def _arguments(text: str) -> tuple[dict[str, Any], str]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}, text
    return (value, "") if isinstance(value, dict) else ({}, text)


def _logged(event: Event) -> tuple[Any, ...]:
    match event.fact:
        case AgentThinking() as fact:
            return ("thinking", fact.text, fact.signature)
        case AgentToolUse() as fact:
            return ("call", fact.name, fact.input, fact.malformed)
        case _:
            return ("text", text_of(getattr(event.fact, "content", ())))


def _is_kept(part: tuple[Any, ...], said: list[tuple[Any, ...]]) -> bool:
    if part[0] == "thinking":
        return bool(part[2]) and part in said
    return part[0] == "text" and any(whole[0] == "text" and whole[1].startswith(part[1]) for whole in said)


def responses_are_committed_whole(history: History) -> Iterator[str]:
    """S4, S13: the parts of a response and its end are one transaction."""
    where = {event.seq: number for number, commit in enumerate(history.commits) for event in commit.events}
    for request in history.requests:
        for event, _ in request.ends:
            if any(where.get(part.seq) != where.get(event.seq) for part in request.parts):
                yield f"the response to the request at {request.start.seq} was appended in pieces"


ALL = (
    requests_are_logged_first,
    head_is_pinned,
    context_is_what_happened,
    only_whole_responses_count,
    responses_are_committed_whole,
)
