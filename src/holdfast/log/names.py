"""Names of sessions and inbox items as users type them: an id, a key, or a part of one."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import UnknownItem, UnknownSession
from holdfast.session.rows import ItemRow

LAST = "last"
"""Name of the session that was opened last, children aside."""

_TAIL_MIN = 6


def tail_of(name: str) -> str:
    """Return the end of an id that a name may be; empty for one that is too short to tell ids apart."""
    tail = name.removeprefix("ses_").removeprefix("itm_")
    return tail if len(tail) >= _TAIL_MIN else ""


def is_like(name: str, full: str) -> bool:
    """Return True if an id begins with the name, or ends with it."""
    tail = tail_of(name)
    return full.startswith(name) or bool(tail and full.endswith(tail))


def unknown(name: str) -> UnknownSession:
    """Return the error for an unknown session."""
    return UnknownSession(f"no session {name!r}; list sessions with `holdfast ps --all`")


def pick_item(name: str, candidates: Sequence[ItemRow]) -> ItemRow:
    """Return the one item that `name` stands for. Raises `UnknownItem` unless exactly one is like it."""
    exact = next((item for item in candidates if item.item_id == name), None)
    if exact is not None:
        return exact
    if not name or not candidates:
        raise UnknownItem(f"no inbox item {name!r}; list items with `holdfast inbox`")
    if len(candidates) > 1:
        several = ", ".join(item.item_id for item in candidates[:3])
        raise UnknownItem(f"{name!r} matches several inbox items ({several}); type more of the id")
    return candidates[0]


def pick(name: str, candidates: Sequence[str]) -> str:
    """Return the one session that `name` stands for. Raises `UnknownSession` unless exactly one is like it."""
    if not name or not candidates:
        raise unknown(name)
    if len(candidates) > 1:
        raise UnknownSession(f"{name!r} matches several sessions ({', '.join(candidates[:3])}); type more of it")
    return candidates[0]
