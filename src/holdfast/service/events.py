"""Queries of events: pages of a log, the last message, and the answers that still count. They change nothing."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage
from holdfast.log.base import Log
from holdfast.session.state import State

PAGE = 1_000
"""Number of events in a page."""

LATEST = 200
"""Number of latest events among which the last message is searched."""


async def events(
    log: Log, session_id: str, *, after: int = 0, types: Collection[str] = (), limit: int = PAGE
) -> list[Event]:
    """Return the next events after position `after`, at most `limit`, oldest first; empty at the end of the log.

    With `types`, returns only events of these types.
    """
    found: list[Event] = []
    size = PAGE if types else limit
    while len(found) < limit:
        page = await log.read(session_id, after=after, limit=size)
        found += [event for event in page if not types or event.type in types][: limit - len(found)]
        if len(page) < size:
            break
        after = page[-1].seq
    return found


async def last_message(log: Log, state: State) -> str:
    """Return the model's latest message up to this state; empty if it is not among the latest events."""
    first = max(0, state.seq - LATEST)
    for event in reversed(await log.read(state.session_id, after=first, limit=state.seq - first)):
        if isinstance(event.fact, AgentMessage):
            return text_of(event.fact.content)
    return ""


async def counting_answers(log: Log, state: State) -> list[Event]:
    """Return the answers of a session that still allow or deny further calls."""
    seqs = {grant.seq for grant in state.grants} | {ask.decided_seq for ask in state.asks.values() if ask.verdict}
    return [(await log.read(state.session_id, after=seq - 1, limit=1))[0] for seq in sorted(seqs)]
