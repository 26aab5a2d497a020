"""Whose events a session is made of: its own, and before them those that a fork shares with its origin (S22).

Nothing is copied: the events before a fork stay where they were stored, and are verified there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.facts.codec import Event, genesis
from holdfast.log.stored import damaged
from holdfast.session.rows import SessionRow

Find = Callable[[str], SessionRow | None]
"""Session id → row."""

Own = Callable[[str, int, int, bytes | None], list[Event]]
"""A session's own events: `(session_id, after, count, prev)`, verified when `prev` is given."""

ALL = 2**62
"""As many events as there are: PostgreSQL and SQLite spell "no limit" differently."""


class Part(NamedTuple):
    """The events of one session after `after`, through `through`, None for all of them."""

    session_id: str
    after: int
    through: int | None


def parts(row: SessionRow, find: Find) -> list[Part]:
    """Where the events of a session are stored, in order. Raises `LogDamaged` when one of its origins is gone."""
    found: list[Part] = []
    seen: set[str] = set()
    through: int | None = None
    while True:
        if through is None or through > row.origin_seq:
            found.append(Part(row.session_id, row.origin_seq, through))
        if not row.origin:
            return found[::-1]
        seen.add(row.session_id)
        through = row.origin_seq if through is None else min(through, row.origin_seq)
        origin = find(row.origin)
        if origin is None or origin.session_id in seen:
            raise damaged(row.session_id, 0, f"it is a fork of session {row.origin}, and there is no such session")
        row = origin


def holder(row: SessionRow, find: Find, seq: int) -> str:
    """The session under whose id the event at `seq` of this one is stored, if it is stored at all."""
    if seq > row.origin_seq:
        return row.session_id
    return next(part.session_id for part in parts(row, find) if part.through is None or seq <= part.through)


def read(row: SessionRow, find: Find, own: Own, after: int, prev: bytes | None, count: int) -> list[Event]:
    """`Log.read` of a session: its origins' events, then its own."""
    if after >= row.origin_seq and row.origin:
        return own(row.session_id, after, count, prev)
    found: list[Event] = []
    at, link = after, prev
    places = parts(row, find)
    if after == 0 and prev == genesis(row.session_id):
        link = genesis(places[0].session_id)
    for part in places:
        if part.through is not None and part.through <= at:
            continue
        left = count - len(found)
        wanted = left if part.through is None else min(left, part.through - at)
        events = own(part.session_id, at, wanted, link)
        found += events
        if events:
            at, link = events[-1].seq, events[-1].hash if link is not None else None
        if len(found) >= count:
            break
        if part.through is not None and at < part.through:
            raise damaged(part.session_id, at + 1, "it is missing")
    return found
