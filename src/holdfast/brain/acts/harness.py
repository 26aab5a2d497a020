"""Calls that the harness answers: its own tools, log search, and functions of the embedding program (S4)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import anyio

from holdfast.brain.acts import child as child_act
from holdfast.brain.acts import jobs as jobs_act
from holdfast.brain.doors import Attempt, CustomResult, Opens, ToolRunner, no_children
from holdfast.brain.shift import Answer, Shift, first_error
from holdfast.errors import UsageError
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentToolUse, PhaseEnded, RuleBreached
from holdfast.facts.people import ApprovalDecided, UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildFinished
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.log.base import Log
from holdfast.session.context.notes import note_of
from holdfast.session.context.text import action_text
from holdfast.session.context.window import arrived
from holdfast.session.state import Call


async def run(shift: Shift, call_id: str) -> None:
    """Answer the call."""
    call = shift.state.call(call_id)
    use = await shift.body(call.seq)
    assert isinstance(use, AgentToolUse)
    answer = shift.acts.answers.get(call.name) or _ANSWERS[call.name]
    await answer(shift, call, use.input)


async def _end_phase(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    ended = PhaseEnded(call_id=call.call_id, name=str(value["name"]), next=str(value.get("next", "")))
    await shift.decision(ended, ToolResult(call_id=call.call_id, outcome="ok", content="The phase is over."))


async def _sleep(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    early = arrived(shift.state, call)
    slept_s = max(0.0, (shift.doors.clock.now_us() - call.at_us) / 1e6)
    content = f"Woken after {slept_s:.0f} s: something came in." if early else "Slept."
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok", content=content))


async def _search_log(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    found = await search(
        shift.doors.log,
        shift.state.session_id,
        str(value["query"]),
        before=int(value.get("before") or call.seq),
        limit=int(value.get("limit", 10)),
    )
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok", content=found))


_ANSWERS: dict[str, Answer] = {
    "end_phase": _end_phase,
    "sleep": _sleep,
    "search_log": _search_log,
    "spawn": child_act.spawn,
    "message_child": child_act.message,
    "wait_for_children": child_act.report,
    "cancel_child": child_act.cancel,
    "job_wait": jobs_act.report,
    "job_log": jobs_act.log,
    "service_logs": jobs_act.log,
    "job_stop": jobs_act.stop_nothing,
    "service_stop": jobs_act.stop_nothing,
}


PAGE = 1_000
"""Number of events read at once, from the newest back."""

EVENTS_MAX = 50_000
"""Maximum events of one search, so that it takes seconds at most; `before` goes further back."""

AROUND = 300
"""Characters shown around the first match."""


async def search(log: Log, session_id: str, query: str, *, before: int, limit: int, most: int = EVENTS_MAX) -> str:
    """Return the entries before `before` that contain all words of `query`, newest first, as text for the model.

    Searches at most `most` events.
    """
    words = query.lower().split()
    if not words:
        return "The query is empty: name words that occur in what you look for."
    found: list[str] = []
    last = before - 1
    oldest = max(0, last - most)
    while last > oldest and len(found) < limit:
        first = max(oldest, last - PAGE)
        events = await log.read(session_id, after=first, limit=last - first)
        searches = {
            event.fact.call_id for event in events if isinstance(event.fact, AgentToolUse) and _is_search(event)
        }
        for event in reversed(events):
            result_of_search = isinstance(event.fact, ToolResult) and event.fact.call_id in searches
            entry = "" if _is_search(event) or result_of_search else _entry(event, words)
            if entry and len(found) < limit:
                found.append(entry)
        last = first
    return _said(found, words, before, limit, oldest)


def _said(found: list[str], words: list[str], before: int, limit: int, oldest: int) -> str:
    further = f"; `before` {oldest + 1} looks at what came before event {oldest + 1}" if oldest else ""
    if not found:
        return f"Nothing before {before} has all of: {', '.join(words)}{further}."
    if len(found) == limit:
        further = "; `before` goes further back"
    more = f"\n\n(the newest {len(found)}{further})" if further else ""
    return "\n\n".join(found) + more


def _is_search(event: Event) -> bool:
    return isinstance(event.fact, AgentToolUse) and event.fact.name == "search_log"


def _entry(event: Event, words: list[str]) -> str:
    title, text = _words(event)
    low = text.lower()
    if not text or not all(word in low for word in words):
        return ""
    at = min(low.index(word) for word in words)
    start, end = max(0, at - AROUND), min(len(text), at + AROUND)
    cut = f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"
    return f"[{event.seq}] {title}\n{cut}"


def _words(event: Event) -> tuple[str, str]:
    match event.fact:
        case UserMessage(content=content):
            return "a person said", text_of(content)
        case AgentMessage(content=content):
            return "you said", text_of(content)
        case AgentToolUse(name=name, input=value, malformed=malformed):
            return f"you called {name}", action_text(name, value) + malformed
        case ToolResult(call_id=call_id, content=content) | ToolOutcomeUnknown(call_id=call_id, content=content):
            strange = isinstance(event.fact, ToolResult) and event.fact.untrusted
            return f"result of call {call_id}{', from outside, maybe by strangers' if strange else ''}", content
        case ApprovalDecided(verdict=verdict, note=note):
            return f"a person answered ({verdict})", note
        case SessionCreated(goal=goal):
            return "the goal", goal
        case ChildFinished() | RuleBreached() as fact:
            return "the harness said", note_of(fact)
        case _:
            return "", ""


def custom_runner(shift: Shift, name: str) -> ToolRunner:
    """Return the function behind a tool. Raises `UsageError` if this program does not provide it."""
    found = shift.doors.tools.get(name)
    if found is None:
        raise UsageError(
            f"session {shift.state.session_id} uses the tool {name!r}, a function that this program does not have; "
            "nothing was run: wake it from the program that defines it"
        )
    return found


def key_of(shift: Shift, call_id: str) -> str:
    """Return the idempotency key of a call, which is the same for every attempt."""
    return f"{shift.state.session_id}:{call_id}"


async def run_custom(shift: Shift, uses: list[AgentToolUse]) -> None:
    """Run dispatched calls concurrently, and record their ends."""
    try:
        async with anyio.create_task_group() as group:
            for use in uses:
                group.start_soon(_run_custom, shift, use)
    except BaseExceptionGroup as error:
        raise first_error(error) from None


async def _run_custom(shift: Shift, use: AgentToolUse) -> None:
    """Run one function to its end: a user's stop does not interrupt it, since its outcome would be unknown."""
    began_s = shift.doors.clock.monotonic_s()
    found = custom_runner(shift, use.name)
    attempt = _attempt(shift, use.call_id, partial(child_act.run_for, shift, use.call_id))
    result = await found.run(use.call_id, use.input, key_of(shift, use.call_id), attempt)
    call = shift.state.call(use.call_id)
    if result.unknown:
        await shift.fact(_custom_unknown(call, result))
        return
    duration_ms = round((shift.doors.clock.monotonic_s() - began_s) * 1000, 3)
    await shift.fact(custom_settled(call, "ok" if result.ok else "error", result.content, duration_ms=duration_ms))


async def probe_custom(shift: Shift, use: AgentToolUse) -> bool | None:
    """Ask the tool's own probe if a call of a dead process happened; None if unknown."""
    found = custom_runner(shift, use.name)
    return await found.probe(use.call_id, use.input, key_of(shift, use.call_id), _attempt(shift, use.call_id))


def _attempt(shift: Shift, call_id: str, child: Opens = no_children) -> Attempt:
    call = shift.state.call(call_id)
    return Attempt(call.attempt, call.dispatch_seq, child)


def custom_settled(
    call: Call,
    outcome: Literal["ok", "error"],
    content: str,
    *,
    duration_ms: float | None = None,
    reconciled: bool = False,
) -> ToolResult:
    """Return the result of a call with its cost."""
    priced = call.reserved_pico is not None
    return ToolResult(
        call_id=call.call_id,
        outcome=outcome,
        content=content,
        duration_ms=duration_ms,
        reconciled=reconciled,
        dispatch_seq=call.dispatch_seq if priced else 0,
        cost_pico=call.reserved_pico,
    )


def _custom_unknown(call: Call, result: CustomResult) -> ToolOutcomeUnknown:
    priced = call.reserved_pico is not None
    return ToolOutcomeUnknown(
        call_id=call.call_id,
        reason=result.content,
        content=f"The outcome of this call is unknown: {result.content}. Look at the actual state before you go on.",
        dispatch_seq=call.dispatch_seq if priced else 0,
        cost_pico=call.reserved_pico,
    )
