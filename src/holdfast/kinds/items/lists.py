"""Lists of items: from JSON lines, CSV, or text to items with unique keys, and from an item to its prompt. Pure.

Whatever is wrong with a list is found before anything starts: half a line, bytes that are not UTF-8, a key that occurs
twice or is missing, a field that the prompt names and an item lacks.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.facts.items import ItemData, ItemsAdded

PART = 200
"""Most items in one event. An item is read with its whole event."""

PART_BYTES = 48_000
"""Most bytes of items in one event, unless a single item is larger."""

ITEM_BYTES = 1_000_000
"""Most bytes of one item. A larger text belongs in a file that the agent reads."""

KEY_LENGTH = 500

_FIELD = re.compile(r"\{\{|\}\}|\{([\w.-]+)\}")


def read_text(data: bytes, origin: str) -> str:
    """Decode a list. Raises `UsageError` with the line of bytes that are not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unusable(
            origin, f"line {line} has bytes that are not UTF-8; convert it, for example with iconv"
        ) from None


def read_lines(text: str, origin: str, *, plain: bool = False) -> list[dict[str, Any]]:
    """Return the records of JSON lines. With `plain`, a line that is no JSON object becomes the field `line`."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip():
            continue
        if plain and not line.lstrip().startswith("{"):
            records.append({"line": line})
            continue
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            half = " (its last line, which does not end: is it still being written?)"
            cut = half if number == text.count("\n") + 1 else ""
            raise _unusable(origin, f"line {number}{cut} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise _unusable(origin, f'line {number} is not a JSON object, such as {{"id": 7}}')
        records.append(value)
    return records


def read_csv(text: str, origin: str) -> list[dict[str, Any]]:
    """Return the rows of a CSV file whose first line names the columns."""
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    try:
        header = next(reader, [])
        if not header or len(set(header)) != len(header) or not all(name.strip() for name in header):
            raise _unusable(origin, "its first line has to name the columns, each once")
        records = []
        for row in reader:
            if row and len(row) != len(header):
                raise _unusable(origin, f"line {reader.line_num} has {len(row)} fields, and the header {len(header)}")
            if row:
                records.append(dict(zip(header, row, strict=True)))
        return records
    except csv.Error as error:
        raise _unusable(origin, f"line {reader.line_num} is not CSV: {error}") from None


def keyed(records: Sequence[dict[str, Any]], key: str, origin: str) -> tuple[ItemData, ...]:
    """Return the items of records: keyed by the field `key` or, if it is empty, by the digest of the record.

    Raises `UsageError` for a key that is missing, occurs twice, or cannot be one.
    """
    found: dict[str, int] = {}
    items = []
    for number, record in enumerate(records, 1):
        if len(body := msgspec.json.encode(record, order="deterministic")) > ITEM_BYTES:
            raise _unusable(
                origin, f"item {number} has {len(body)} bytes, and {ITEM_BYTES} is the cap; name a file instead"
            )
        name = _key(record, key, number, origin) if key else hashlib.sha256(body).hexdigest()[:16]
        if name in found:
            what = f"the key {name!r}" if key else "the same fields"
            why = "" if key else "; if both are meant, give each a field that differs"
            raise _unusable(origin, f"items {found[name]} and {number} have {what}{why}")
        found[name] = number
        items.append(ItemData(name, record))
    return tuple(items)


def _key(record: dict[str, Any], key: str, number: int, origin: str) -> str:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _unusable(origin, f"item {number} has no text or whole number in its key field {key!r}")
    name = str(value)
    if not name.strip() or not name.isprintable() or len(name) > KEY_LENGTH:
        raise _unusable(
            origin, f"the key of item {number}, {name[:40]!r}, is empty, too long, or has control characters"
        )
    return name


def parts_of(items: Iterable[ItemData], *, replace: bool = False, listed: bool = False) -> list[ItemsAdded]:
    """Return the events that add items, none of them large."""
    parts: list[list[ItemData]] = []
    size = PART_BYTES
    for item in items:
        more = len(msgspec.json.encode(item))
        if size + more > PART_BYTES or len(parts[-1]) == PART:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += more
    return [ItemsAdded(items=tuple(part), replace=replace, listed=listed) for part in parts]


def render(template: str, item: ItemData) -> str:
    """Return the prompt of an item: `{field}` is a field, `{key}` the key, `{item}` all fields as JSON."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        found = item.fields[name] if name in item.fields else {"key": item.key, "item": item.fields}[name]
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()

    return _FIELD.sub(value, template)


def fields_of(template: str) -> frozenset[str]:
    """Return the fields that a template names."""
    return frozenset(name for name in _FIELD.findall(template) if name) - {"key", "item"}


def check_fields(template: str, items: Sequence[ItemData], origin: str) -> None:
    """Raise `UsageError` if an item lacks a field that the prompt names."""
    wanted = fields_of(template)
    for number, item in enumerate(items, 1):
        if missing := sorted(wanted - item.fields.keys()):
            has = ", ".join(sorted(item.fields)[:8])
            raise _unusable(
                origin,
                f"the prompt names {{{missing[0]}}}, and item {number} ({item.key}) has no such field; it has {has}. "
                "Write {{ and }} for braces",
            )


def _unusable(origin: str, why: str) -> UsageError:
    return UsageError(f"{origin} cannot be used: {why}; nothing was started")
