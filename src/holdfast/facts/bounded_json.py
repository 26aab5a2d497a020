"""JSON decoder with a bound on nesting, for input from outside.

A decoder recurses as deep as its input is nested, so input from a model, a client, or a file could crash the process
that reads it. The depth that a decoder reaches depends on its caller's stack; this bound does not.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_ANY: Any = Any

DEPTH_MAX = 64
"""Maximum depth of objects and arrays; the outermost counts as one."""

TOO_DEEP = f"it is nested more than {DEPTH_MAX} levels deep"


def decode(data: str | bytes) -> Any:
    """Decode JSON text. Raises `msgspec.DecodeError`, also for values nested deeper than `DEPTH_MAX`."""
    return decode_as(data, _ANY)


def decode_as(data: str | bytes, kind: type[T]) -> T:
    """Decode JSON text into `kind`. Fields that the type does not have may be nested deeper."""
    try:
        value = msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error
    if too_deep(value):
        raise msgspec.DecodeError(TOO_DEEP)
    return value


def too_deep(value: object) -> bool:
    """Return True if dicts and lists are nested deeper than `DEPTH_MAX`."""
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
