"""Looking into a session's own past (`search_log`): every word is in the log, whatever the context shows."""

from __future__ import annotations

from holdfast.facts.base import Fact, text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionCreated
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.log.base import Log
from holdfast.session.notes import note_of
from holdfast.session.render import action_text

PAGE = 1_000
"""Events read at a time, from the newest back."""

AROUND = 300
"""Characters shown around the first word that was found."""


async def search(log: Log, session_id: str, query: str, *, before: int, limit: int) -> str:
    """Entries before `before` in which all words of `query` occur, newest first, as text for the model."""
    words = query.lower().split()
    if not words:
        return "The query is empty: name words that occur in what you look for."
    found: list[str] = []
    last = before - 1
    while last > 0 and len(found) < limit:
        first = max(0, last - PAGE)
        events = await log.read(session_id, after=first, limit=last - first)
        for event in reversed(events):
            entry = _entry(event, words)
            if entry and len(found) < limit:
                found.append(entry)
        last = first
    if not found:
        return f"Nothing before {before} has all of: {', '.join(words)}."
    more = f"\n\n(only the newest {limit}; `before` goes further back)" if len(found) == limit else ""
    return "\n\n".join(found) + more


def _entry(event: Event, words: list[str]) -> str:
    title, text = _words(event.fact)
    low = text.lower()
    if not text or not all(word in low for word in words):
        return ""
    at = min(low.index(word) for word in words)
    start, end = max(0, at - AROUND), min(len(text), at + AROUND)
    cut = f"{'… ' if start else ''}{text[start:end]}{' …' if end < len(text) else ''}"
    return f"[{event.seq}] {title}\n{cut}"


def _words(fact: Fact) -> tuple[str, str]:
    match fact:
        case UserMessage(content=content):
            return "a person said", text_of(content)
        case AgentMessage(content=content):
            return "you said", text_of(content)
        case AgentToolUse(name=name, input=value):
            return f"you called {name}", action_text(name, value)
        case ToolResult(call_id=call_id, content=content) | ToolOutcomeUnknown(call_id=call_id, content=content):
            return f"result of call {call_id}", content
        case ApprovalDecided(verdict=verdict, note=note):
            return f"a person answered ({verdict})", note
        case SessionCreated(goal=goal):
            return "the goal", goal
        case _:
            return "the harness said", note_of(fact)
