"""Records of a response: JSON lines, or a JSON array, as a command prints or a web server sends them.

A response is read whole or not at all. Its source may continue after a value (`cursor_field`); one that always returns
what is there at the moment has no such value, and the cursor then is the digests of the records that were taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.errors import SourceError
from holdfast.facts import bounded_json
from holdfast.sources.base import Offered, Polled, Rejected, digest, event, excerpt, page
from holdfast.sources.settings import Shape

RESPONSE_BYTES = 4_000_000
"""Largest response, in bytes."""

RECORDS_MAX = 2_000
"""Records of a response without `cursor_field`."""


class _Read(msgspec.Struct, frozen=True):
    """A record, with its value to continue after."""

    found: Offered | Rejected
    cursor: str = ""


def read(body: bytes, shape: Shape, cursor: str, limit: int) -> Polled:
    """Return the events of a response after `cursor`. Raises `SourceError` if it cannot be read safely."""
    records = [_record(value, shape) for value in _values(body, shape)]
    return _after_values(records, cursor, limit) if shape.cursor_field else _unseen(records, cursor, limit)


def _after_values(records: list[_Read], cursor: str, limit: int) -> Polled:
    """Take the first events. What is refused here has no value to continue after, so all of it is named at once."""
    events = [(record.found, record.cursor) for record in records if isinstance(record.found, Offered)]
    refused = tuple(record.found for record in records if isinstance(record.found, Rejected))
    taken = page(events, lambda pair: pair[1], limit)
    note = f"{len(refused)} records were refused; {limit} of them are named" if len(refused) > limit else ""
    after = taken[-1][1] if taken else cursor
    return Polled(tuple(found for found, _ in taken), after, len(events) > len(taken), refused[:limit], note)


def _unseen(records: list[_Read], cursor: str, limit: int) -> Polled:
    """Take the first records that are not in the cursor; those that the source no longer returns leave it."""
    unique = {record.found.key: record.found for record in reversed(records)}
    if len(unique) > RECORDS_MAX:
        raise SourceError(
            f"the response has more than {RECORDS_MAX} records and no field to continue after; nothing was taken. Set "
            "cursor_field, or let the source return fewer",
            retryable=False,
        )
    seen = set(cursor.split())
    new = [found for found in reversed(unique.values()) if _mark(found.key) not in seen]
    taken = new[:limit]
    kept = sorted((seen & {_mark(key) for key in unique}) | {_mark(found.key) for found in taken})
    events = tuple(found for found in taken if isinstance(found, Offered))
    rejected = tuple(found for found in taken if isinstance(found, Rejected))
    return Polled(events, " ".join(kept), len(new) > limit, rejected)


def _mark(key: str) -> str:
    return digest(key)[:12]


def _values(body: bytes, shape: Shape) -> Iterator[Any]:
    """Decode a response to its records; one that cannot be decoded is a `Rejected`."""
    if len(body) > RESPONSE_BYTES:
        raise SourceError(f"the response is larger than {RESPONSE_BYTES} bytes; nothing was taken", retryable=False)
    if shape.items or body.lstrip().startswith(b"["):
        try:
            whole = bounded_json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"the response is not JSON ({error}); nothing was taken", retryable=True) from error
        found = _field(whole, shape.items) if shape.items else whole
        if not isinstance(found, list):
            raise SourceError(f"the response has no array {shape.items!r}; nothing was taken", retryable=False)
        yield from found
        return
    lines = body.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield bounded_json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number == len(lines):
                raise SourceError(
                    f"the last line of the response is not complete ({excerpt(line)!r}); nothing was taken",
                    retryable=True,
                ) from error
            yield Rejected(digest("line", line.hex()), f"the line is not JSON: {error}", excerpt(line))


def _record(value: Any, shape: Shape) -> _Read:
    if isinstance(value, Rejected):
        return _Read(value)
    named = _field(value, shape.key) if shape.key else value
    after = _field(value, shape.cursor_field) if shape.cursor_field else None
    raw = msgspec.json.encode(value)
    for field, found in ((shape.key, named), (shape.cursor_field, after)):
        if field and (isinstance(found, bool | dict | list) or found is None or found == ""):
            return _Read(Rejected(digest("record", value), f"the record has no {field!r}", excerpt(raw)))
    key = str(named) if shape.key else digest(value)
    return _Read(event(key if len(key) <= 200 else digest(key), value), "" if after is None else str(after))


def _field(value: Any, path: str) -> Any:
    """Return the value of a dotted field, None if it is not there."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
