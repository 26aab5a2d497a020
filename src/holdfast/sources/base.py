"""The source interface: one verb that reads the events after a cursor.

A source keeps no state of its own. The caller appends the events and the new cursor in one transaction, and drops
events whose key it has. If it dies before that, it polls with the old cursor and reads the same events again: at least
once from the source, exactly once into the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.errors import SourceError
from holdfast.facts import bounded_json

T = TypeVar("T")

DATA_BYTES = 65_536
"""Largest content of one event, in bytes of JSON."""

EXCERPT_CHARS = 200
"""Longest excerpt of what was refused."""


class Offered(msgspec.Struct, frozen=True):
    """One event. `key` identifies it within its source; `at_us` is the time of the event, None if it has none."""

    key: str
    data: dict[str, Any]
    at_us: int | None = None


class Rejected(msgspec.Struct, frozen=True):
    """A part of what was read that is not an event: why not, and how it begins. `key` is the same at each poll."""

    key: str
    reason: str
    excerpt: str = ""


class Polled(msgspec.Struct, frozen=True):
    """Result of a poll, in the order of the source.

    `cursor` continues after these events; `more` is True if others wait. `rejected` is what the source delivered and
    could not be read as an event; it counts against the limit, and the cursor is after it too. `note` is a loss that
    the source itself reports.
    """

    events: tuple[Offered, ...]
    cursor: str
    more: bool = False
    rejected: tuple[Rejected, ...] = ()
    note: str = ""


class Source(Protocol):
    """A source of events. Reading changes nothing in it."""

    async def poll(self, cursor: str, limit: int) -> Polled:
        """Return at most `limit` events after the cursor, which is empty for the first poll.

        Raises `SourceError`; then the cursor stays as it is, and nothing is lost.
        """
        ...


def digest(*parts: object) -> str:
    """Return a short digest that identifies these JSON values, for keys."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:24]


def excerpt(raw: str | bytes) -> str:
    """Return the beginning of a text on one line, without control characters."""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
    shown = "".join(char if char.isprintable() else " " for char in text[: EXCERPT_CHARS + 1])
    return shown if len(shown) <= EXCERPT_CHARS else f"{shown[:EXCERPT_CHARS]}…"


def event(key: str, data: Any, at_us: int | None = None) -> Offered | Rejected:
    """Return an event with this content, refused if it is too large. A value that is no object becomes `value`."""
    wrapped = data if isinstance(data, dict) else {"value": data}
    raw = msgspec.json.encode(wrapped)
    if len(raw) > DATA_BYTES:
        return Rejected(key, f"the event is larger than {DATA_BYTES} bytes", excerpt(raw))
    try:
        return Offered(key, bounded_json.decode(raw), at_us)
    except msgspec.DecodeError as error:
        return Rejected(key, str(error), excerpt(raw))


def page(found: Sequence[T], after: Callable[[T], object], limit: int) -> Sequence[T]:
    """Return the first items, at most `limit`, cut only where the value to continue after changes.

    Otherwise the next poll, which continues after that value, would miss the rest. Raises `SourceError` if too many
    items share a value.
    """
    if len(found) <= limit:
        return found
    end = limit
    while end and after(found[end - 1]) == after(found[limit]):
        end -= 1
    if not end:
        raise SourceError(
            f"more than {limit} events have the same value {excerpt(str(after(found[0])))!r} to continue after; "
            "nothing was taken. Continue after a value that is different for each event",
            retryable=True,
        )
    return found[:end]
