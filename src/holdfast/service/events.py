"""Queries of events: pages of a log, the last message, and the answers that still count. They change nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection

from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage
from holdfast.log.base import Index, Log, Which, each_session
from holdfast.session.rows import SessionRow
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


async def tail(
    log: Log, row: SessionRow, keep: Callable[[Event], bool], *, after: int = 0, since_us: int = 0, limit: int = PAGE
) -> list[Event]:
    """Return the last events of a session that `keep` accepts, after a position and since a time, oldest first.

    Returns at most `limit`; reads backwards from the end of the log, and stops at the first page that is too old.
    """
    found: list[Event] = []
    last = row.head
    while last > after and len(found) < limit:
        first = max(after, last - PAGE)
        page = await log.read(row.session_id, after=first, limit=last - first)
        found = [*(event for event in page if event.at_us >= since_us and keep(event)), *found]
        last = first if page and page[0].at_us >= since_us else after
    return found[-limit:]


async def latest(
    log: Log, index: Index, keep: Callable[[Event], bool], *, since_us: int, seen: dict[str, int], limit: int = PAGE
) -> list[Event]:
    """Return the latest events of all sessions since a time, in the order of their times, at most `limit`.

    `seen` maps sessions to positions up to which events are left out; it is updated, so that the next call returns
    later events only.
    """
    found: list[Event] = []
    async for row in each_session(index, Which(updated_us=since_us)):
        if len(found) < limit or row.updated_us >= found[0].at_us:
            after = max(row.origin_seq, seen.get(row.session_id, 0))  # a fork's first events are its origin's
            found += await tail(log, row, keep, after=after, since_us=since_us, limit=limit)
            found = sorted(found, key=lambda event: (event.at_us, event.session_id, event.seq))[-limit:]
        seen[row.session_id] = row.head
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
