"""The inbox as rows: one per question to a person, folded from the session's own events (S20, S21)."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.facts.codec import Event
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    ItemKind,
)

ItemStatus = Literal["open", "approved", "denied", "expired", "superseded"]


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One question at a glance. `seq` is where its session asks it; the event there has the rest.

    `closed_seq` is the event that gave it its last status, None while it is open; `seen_us` is when
    somebody was first shown it.
    """

    item_id: str
    session_id: str
    seq: int
    kind: ItemKind
    title: str
    opened_us: int
    expires_us: int | None = None
    status: ItemStatus = "open"
    closed_seq: int | None = None
    seen_us: int | None = None


ITEM_FACTS = (ApprovalRequested, ApprovalDecided, ApprovalExpired, ApprovalSuperseded, ApprovalSeen)
"""The facts that move an item; each names it in `item_id`."""

ANSWERS = (ApprovalDecided, ApprovalExpired)
"""The facts of which an item has one: the first wins."""

_ITEM_TYPES = frozenset(ITEM_FACTS)


def item_key(item_id: str) -> str:
    """The key under which an item's decision and its expiry are posted: there is room for one (S21)."""
    return f"item:{item_id}"


def item_of(event: Event) -> str | None:
    """The item that an event moves, None for any other event."""
    fact = event.fact
    if type(fact) not in _ITEM_TYPES:
        return None
    assert isinstance(fact, ITEM_FACTS)
    return fact.item_id


def next_item(item: ItemRow | None, event: Event) -> ItemRow | None:
    """The item after one more event that names it; None while nobody has asked."""
    fact = event.fact
    if isinstance(fact, ApprovalRequested):
        return item or _opened(fact, event)
    if item is None or item.session_id != event.session_id:
        return item
    match fact:
        case ApprovalSeen():
            return _seen(item, fact, event)
        case ApprovalSuperseded() if item.status in ("open", "approved"):
            return replace(item, status="superseded", closed_seq=event.seq)
        case ApprovalDecided(verdict=verdict) if item.status == "open":
            return replace(item, status="approved" if verdict == "approve" else "denied", closed_seq=event.seq)
        case ApprovalExpired() if item.status == "open":
            return replace(item, status="expired", closed_seq=event.seq)
        case _:
            return item


def _seen(item: ItemRow, fact: ApprovalSeen, event: Event) -> ItemRow:
    if item.seen_us is not None:
        return item
    late = item.expires_us is not None and fact.expires_us is not None
    expires_us = max(item.expires_us or 0, fact.expires_us or 0) if late else item.expires_us
    return replace(item, seen_us=event.at_us, expires_us=expires_us)


def _opened(fact: ApprovalRequested, event: Event) -> ItemRow:
    return ItemRow(
        item_id=fact.item_id,
        session_id=event.session_id,
        seq=event.seq,
        kind=fact.kind,
        title=fact.title,
        opened_us=event.at_us,
        expires_us=fact.expires_us,
    )
