"""Invariants of the model's context and of its recorded responses (S3, S13, S14, S16, S17)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentThinking, AgentToolUse, ContextCompacted, ContextReset
from holdfast.facts.session import SessionCreated
from holdfast.session.context.conversation import TextPart
from holdfast.session.context.text import estimate
from holdfast.sim.doors import PROMPT
from holdfast.sim.invariants.history import History, RequestHistory
from holdfast.sim.invariants.window import contexts, goal_of
from holdfast.sim.record import Served
from holdfast.sim.script import named


def requests_are_logged_first(history: History) -> Iterator[str]:
    """S13: each request to the model is in the log first, and is sent once."""
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
        named = (request.fact.purpose, request.number, request.fact.attempt, request.fact.max_output_tokens)
        asks = served.request
        sent = (asks.purpose, asks.responses, asks.attempt, asks.max_output_tokens)
        if named != sent:
            yield f"the request at {served.start_seq} is {named} in the log and {sent} at the model"
        through = request.fact.inputs_through
        cut = _is_too_much(history, request)
        if request.fact.purpose == "turn" and through != served.start_seq - 1 and not cut:
            yield f"the request at {served.start_seq} takes in {request.fact.inputs_through}, not all before it"


def _is_too_much(history: History, request: RequestHistory) -> bool:
    """True if the events omitted from a request would (nearly) have exceeded its context."""
    through = request.fact.inputs_through
    left = [event for event in history.posted if through < event.seq < request.start.seq]
    if not left or left[0].seq != through + 1:
        return False
    tokens = request.fact.input_tokens_estimate + sum(estimate(str(event.fact)) for event in left)
    return 4 * tokens > history.created.limits.context_tokens  # estimates are corrected by the usage of requests


def _served(history: History) -> list[Served]:
    return [each for each in history.world.record.served if each.session_id == history.session.session_id]


def head_is_pinned(history: History) -> Iterator[str]:
    """S17: prompt, rules, goal, and criteria are byte-identical at the head of every context."""
    created = history.created
    rules = f"# Rules of this project\n\n{created.rules}" if created.rules else ""
    system = "\n\n".join(part for part in (PROMPT, _reach(created), created.agent.system, rules) if part)
    for served in _served(history):
        first = served.request.messages[0]
        if served.request.purpose != "turn":
            text = first.parts[0].text if isinstance(first.parts[0], TextPart) else ""
            if any(pinned not in text for pinned in (created.goal, created.rules, *created.criteria)):
                yield f"the {served.request.purpose} at {served.start_seq} is asked for without what is pinned"
            continue
        if served.request.system != system:
            yield f"the system prompt of the request at {served.start_seq} is another one"
        if first.role != "user" or first.parts[0] != TextPart(goal_of(created)):
            yield f"the context of the request at {served.start_seq} does not begin with the goal"


def _reach(created: SessionCreated) -> str:
    """Return the prompt's text on network access, by the session's creation; later grants do not change it."""
    if "bash" not in created.agent.tools:
        return ""
    if not created.egress.allow and not created.egress.registries:
        return "Commands have no network."
    named = [place.host for place in created.egress.allow]
    if created.egress.registries:
        named.append("the package registries")
    return f"Commands can reach {', '.join(named)}, and no other host. A person can change this while you work."


def context_is_what_happened(history: History) -> Iterator[str]:
    """S3, S7, S12, S16: the context has the notes on older turns, then each message once, each response, and each
    result next to its call, in order.
    """
    wanted = {served.start_seq: served for served in _served(history) if served.request.purpose == "turn"}
    for start_seq, messages in contexts(history, set(wanted)):
        if messages != list(wanted[start_seq].request.messages):
            yield f"the context of the request at {start_seq} is not what happened before it"


def summaries_are_of_raw_turns(history: History) -> Iterator[str]:
    """S16: a summary or handoff is made from raw events, never from an earlier one; each range is covered once."""
    notes = _notes(history)
    for served in _served(history):
        if served.request.purpose == "turn":
            continue
        text = str(served.request.messages)
        for seq, words in notes:
            if seq < served.start_seq and words in text:
                yield f"the {served.request.purpose} at {served.start_seq} is made from the one at {seq}"
    through = 0
    for event in history.events:
        if isinstance(event.fact, ContextCompacted | ContextReset):
            start = next((each for each in history.requests if each.start.seq == event.fact.request_seq), None)
            if event.fact.through_seq <= through:
                yield f"what stands for older turns at {event.seq} covers nothing after {through}"
            if start is not None and start.fact.through_seq != event.fact.through_seq:
                yield f"the stretch of the note at {event.seq} is not the one that was asked for"
            through = event.fact.through_seq


def _notes(history: History) -> list[tuple[int, str]]:
    """Return texts that only a summary or a handoff contains, with its position."""
    out = []
    for request in history.requests:
        if request.fact.purpose != "turn" and request.brought and len(history.said(request).text) > 2:
            said = history.said(request).text
            out.append((request.start.seq, f"{request.fact.purpose} {history.session.script.name}.{request.number}"))
            assert out[-1][1] in said
    return out


def only_whole_responses_count(history: History) -> Iterator[str]:
    """S13, S14: a whole response is logged verbatim; of a partial one, no call and no unsigned thinking is kept."""
    for request in history.requests:
        end = request.end
        said = _said(history, request)
        logged = [_logged(event) for event in request.parts]
        at = request.start.seq
        if end is not None and end.outcome == "ok" and request.fact.purpose == "turn":
            if logged != said:
                yield f"the response to the request at {at} is not what the model said"
        elif end is None or end.outcome != "cancelled" or request.fact.purpose != "turn":
            if logged:
                yield f"the request at {at} brought no response, and parts of one are in the log"
        else:
            texts = [part[1] for part in said if part[0] == "text"]
            for part in logged:
                signed = part[0] == "thinking" and bool(part[2]) and part in said
                begun = part[0] == "text" and any(text.startswith(part[1]) for text in texts)
                if not signed and not begun:
                    yield f"of the interrupted response to the request at {at} too much is kept"


def _said(history: History, request: RequestHistory) -> list[tuple[Any, ...]]:
    turn = history.said(request)
    children = history.session.children_before(request.start.seq)
    said: list[tuple[Any, ...]] = []
    if turn.thinking:
        said.append(("thinking", turn.thinking, turn.signature))
    if turn.text:
        said.append(("text", turn.text))
    for call in turn.calls:
        said.append(("call", call.name, *_arguments(named(call.arguments, children))))
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
    summaries_are_of_raw_turns,
    only_whole_responses_count,
    responses_are_committed_whole,
)
