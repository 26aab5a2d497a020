"""JSON from outside, decoded with a bound on its nesting.

A decoder recurses with the depth of what it reads, so what a model, a client, or a file says could end the process
that reads it. How deep a decoder gets depends on who calls it; this bound does not.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_ANY: Any = Any

DEPTH_MAX = 64
"""Objects and arrays within each other; the outermost counts as one."""

TOO_DEEP = f"it is nested more than {DEPTH_MAX} levels deep"


def decode(data: str | bytes) -> Any:
    """The value of a JSON text. Raises `msgspec.DecodeError`, also for one that is nested more than `DEPTH_MAX`."""
    return decode_as(data, _ANY)


def decode_as(data: str | bytes, kind: type[T]) -> T:
    """The same as a value of that type; fields that the type does not know may be nested deeper."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error
    if too_deep(value):
        raise msgspec.DecodeError(TOO_DEEP)
    return value


def too_deep(value: object) -> bool:
    """Whether dicts and lists are within each other more than `DEPTH_MAX` deep."""
    level = [value]
    for _ in range(DEPTH_MAX):
        if not level:
            return False
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, dict | list) for each in level)
