"""Looking into a session's own past (`search_log`): every word is in the log, whatever the context shows.

Found is what happened, never what was made of it: summaries and handoffs are not looked at, or one would get
into the next through a search (S16); nor are the results of earlier searches.
"""

from __future__ import annotations

from holdfast.facts.base import text_of
from holdfast.facts.child import ChildFinished
from holdfast.facts.codec import Event
from holdfast.facts.context import RuleBreached
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import SessionCreated
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.log.base import Log
from holdfast.session.context.notes import note_of
from holdfast.session.context.render import action_text

PAGE = 1_000
"""Events read at a time, from the newest back."""

EVENTS_MAX = 50_000
"""Events looked through in one search, so that it takes seconds at most; `before` goes further back."""

AROUND = 300
"""Characters shown around the first word that was found."""


async def search(log: Log, session_id: str, query: str, *, before: int, limit: int, most: int = EVENTS_MAX) -> str:
    """Entries before `before` in which all words of `query` occur, newest first, as text for the model.

    At most `most` events are looked through.
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
            entry = "" if _is_search(event) or _of_search(event, searches) else _entry(event, words)
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


def _of_search(event: Event, searches: set[str]) -> bool:
    return isinstance(event.fact, ToolResult) and event.fact.call_id in searches


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
