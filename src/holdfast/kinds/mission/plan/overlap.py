"""Whether two globs of paths can mean the same file. Pure.

`*` and `?` stay within one part of a path, `**` is any number of parts. A glob that names a folder means all below it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

DEEP = "**"


def overlap(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether some path could match a glob of both. In doubt it says yes."""
    others = [_parts(glob) for glob in other]
    return any(_meet(_parts(glob), parts) for glob in one for parts in others)


def _parts(glob: str) -> tuple[str, ...]:
    parts = tuple(part for part in glob.split("/") if part not in ("", "."))
    return parts if parts and parts[-1] == DEEP else (*parts, DEEP)


@lru_cache(maxsize=4096)
def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if not one or not other:
        return all(part == DEEP for part in (*one, *other))
    if one[0] == DEEP:
        return _meet(one[1:], other) or _meet(one, other[1:])
    if other[0] == DEEP:
        return _meet(one, other[1:]) or _meet(one[1:], other)
    return _names_meet(_letters(one[0]), _letters(other[0])) and _meet(one[1:], other[1:])


def _letters(name: str) -> str:
    """A part with each set of characters as one that can be anything."""
    out, rest = "", name
    while rest:
        close = rest.find("]", 2) if rest[0] == "[" else -1
        out += "?" if close > 0 else rest[0]
        rest = rest[close + 1 :] if close > 0 else rest[1:]
    return out


@lru_cache(maxsize=4096)
def _names_meet(one: str, other: str) -> bool:
    if one[:1] == "*":
        return _names_meet(one[1:], other) or (bool(other) and _names_meet(one, other[1:]))
    if other[:1] == "*":
        return _names_meet(one, other[1:]) or (bool(one) and _names_meet(one[1:], other))
    if not one or not other:
        return one == other
    alike = one[0] == other[0] or "?" in (one[0], other[0])
    return alike and _names_meet(one[1:], other[1:])
