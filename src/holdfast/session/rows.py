"""Rows derived from a session's events: lists, wakes, and the inbox (S20).

The log computes these in its append transaction; `verify` recomputes them from the first event and compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned, SessionTainted
from holdfast.facts.model import ContextCompacted, ContextFailed, ContextReset, ModelRequestEnd
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    ItemKind,
)
from holdfast.facts.session import SessionCreated, SessionEventsLost, SessionForked, SessionUpdated
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.session.fold.hands import RESTING
from holdfast.session.home import HOME, home_changes
from holdfast.session.money import path_of
from holdfast.session.state import CLOCK_STEP_US

T = TypeVar("T")

RowStatus = Literal["runnable", "parked", "done", "failed", "cancelled"]
"""Status of a session without a lease. `running` is derived from a live lease (S5)."""


class Uptime(msgspec.Struct, frozen=True):
    """Time since a boot of the machine by its monotonic clock: setting the wall clock does not change it."""

    boot_id: str
    us: int


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a list. `holder` is the worker of a shift that has not ended, live or dead.

    `due_us` is when the session is due, None for never; `cost_pico` is its known cost. `parent` is empty at the top of
    a tree, `root` is the session at the top. `owner` is a user, empty for none; `name` is its agent's. A fork begins
    after the event `origin_seq` of its `origin`; empty and 0 for other sessions. `marks` are warnings: `weak` when its
    sandbox isolates less than usual, `tainted` when it has read untrusted content, `unpriced` when a part of it had no
    price; those of the home are its limits (`session.limits`). `boot_id` and `due_boot_us` repeat `due_us` as an
    uptime of that boot.
    """

    session_id: str
    key: str
    goal: str
    model: str
    workspace: str
    accounts: tuple[str, ...]
    created_us: int
    updated_us: int
    head: int
    head_hash: bytes
    epoch: int
    status: RowStatus = "runnable"
    reason: str = ""
    detail: str = ""
    holder: str = ""
    due_us: int | None = None
    turns: int = 0
    cost_pico: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    parent: str = ""
    root: str = ""
    depth: int = 0
    owner: str = ""
    name: str = ""
    origin: str = ""
    origin_seq: int = 0
    marks: str = ""
    boot_id: str = ""
    due_boot_us: int | None = None


FIRST = (SessionCreated, SessionForked)
"""Facts that begin a session."""

_GOAL_LENGTH = 200


def first_row(event: Event) -> SessionRow:
    """Return the row of a session whose first own event is this `session.created` or `session.forked`."""
    fact = event.fact
    if isinstance(fact, SessionForked):
        return _fork(fact, event)
    assert isinstance(fact, SessionCreated)
    parent = fact.parent
    return SessionRow(
        session_id=event.session_id,
        key=fact.key,
        goal=_short(fact.goal),
        model=fact.agent.model,
        workspace=fact.workspace.path,
        accounts=path_of(fact, event.session_id),
        created_us=event.at_us,
        updated_us=event.at_us,
        head=event.seq,
        head_hash=event.hash,
        epoch=event.epoch,
        status="parked" if event.session_id == HOME else "runnable",
        due_us=None if event.session_id == HOME else event.at_us,
        parent=parent.session_id if parent else "",
        root=(parent.root or parent.session_id) if parent else event.session_id,
        depth=parent.depth if parent else 0,
        owner=fact.people.owner,
        name=fact.agent.name,
        marks=WEAK if fact.workspace.isolation == "none" else "",
    )


def _fork(fact: SessionForked, event: Event) -> SessionRow:
    """Return the row of a fork, parked until a user wakes it or sends a message (S22)."""
    return SessionRow(
        session_id=event.session_id,
        key=fact.key,
        goal=_short(fact.goal),
        model=fact.model,
        workspace=fact.workspace.path,
        accounts=path_of(fact, event.session_id),
        created_us=event.at_us,
        updated_us=event.at_us,
        head=event.seq,
        head_hash=event.hash,
        epoch=event.epoch,
        status="parked",
        reason=RESTING.reason or "",
        detail=RESTING.detail,
        root=event.session_id,
        owner=fact.owner,
        name=fact.name,
        origin=fact.origin,
        origin_seq=fact.origin_seq,
        marks=WEAK if fact.workspace.isolation == "none" else "",
    )


def due_at(row: SessionRow, now_us: int, up: Uptime | None = None) -> int | None:
    """Return the wall time at which a session is due, None for never; `now_us` or earlier is due now.

    A runnable session is due whatever its time. Setting the clock back makes no wait longer: within a boot the uptime
    counts too, and a row from the future is due once, since its events may show by how much the clock went back.
    """
    if row.due_us is None or row.due_us <= now_us:
        return row.due_us
    if row.status == "runnable" or row.updated_us > now_us + CLOCK_STEP_US:
        return now_us
    if up is not None and row.boot_id == up.boot_id and row.due_boot_us is not None:
        return min(row.due_us, max(now_us, now_us + row.due_boot_us - up.us))
    return row.due_us


def is_due(row: SessionRow, now_us: int, up: Uptime | None = None) -> bool:
    """Return True if a session is due now."""
    at_us = due_at(row, now_us, up)
    return at_us is not None and at_us <= now_us


def due_rank(row: SessionRow, now_us: int) -> int:
    """Return the rank of a due session among others, lowest first: the time since which it is due.

    A time in the future was stamped before the clock was set back. It ranks first, or sessions that become due again
    and again would precede it until the clock catches up.
    """
    return row.due_us if row.due_us is not None and row.due_us <= now_us else 0


def _short(goal: str) -> str:
    return " ".join(goal.split())[:_GOAL_LENGTH]


def next_row(row: SessionRow, event: Event) -> SessionRow:
    """Return the row after one more event."""
    changes = home_changes(event, row.detail, row.marks) if row.session_id == HOME else _changes(row, event)
    return msgspec.structs.replace(
        row, head=event.seq, head_hash=event.hash, epoch=event.epoch, updated_us=event.at_us, **changes
    )


def _changes(row: SessionRow, event: Event) -> dict[str, object]:
    fact = event.fact
    if fact.wakes:
        return _woken(row, event)
    match fact:
        case ToolResult() | ToolOutcomeUnknown():
            return {"cost_pico": row.cost_pico + fact.cost_pico} if fact.cost_pico else {}
        case ToolDispatched(settled_pico=cost) if cost:
            return {"cost_pico": row.cost_pico + cost}
        case ShiftStarted(worker_id=worker):
            return {"holder": worker, "status": "runnable", "reason": "", "detail": "", **_due(event.at_us)}
        case ShiftEnded() as ended:
            return _ended(ended, event.at_us)
        case ModelRequestEnd() as end:
            usage = end.usage
            return {
                "turns": row.turns + (end.outcome == "ok"),
                "cost_pico": row.cost_pico + (end.cost_pico or 0),
                "input_tokens": row.input_tokens + (usage.input_tokens if usage else 0),
                "output_tokens": row.output_tokens + (usage.output_tokens if usage else 0),
                "marks": _marked(row.marks, UNPRICED, on=True) if end.cost_pico is None else row.marks,
            }
        case ContextCompacted() | ContextFailed() | ContextReset() as renewed if renewed.request_seq:
            return {"turns": row.turns - 1}  # the response it came from does not count as a turn of the agent
        case ApprovalSeen(expires_us=int() as expires_us) if row.status == "parked":
            return _seen(row, fact, expires_us)
        case HandsProvisioned() as hands:
            return {"marks": _marked(row.marks, WEAK, on=is_weak(hands))}
        case SessionTainted():
            return {"marks": _marked(row.marks, TAINTED, on=True)}
        case _:
            return {}


WEAK, TAINTED, UNPRICED = "weak", "tainted", "unpriced"


def is_weak(hands: HandsProvisioned) -> bool:
    """Return True if hands isolate less than a sandbox."""
    return bool(hands.weak) or hands.isolation.get("files") != "hard"


def _marked(marks: str, word: str, *, on: bool) -> str:
    others = [each for each in marks.split() if each != word]
    return " ".join(sorted([*others, word] if on else others))


def _woken(row: SessionRow, event: Event) -> dict[str, object]:
    owner = _owner(event.fact)
    if isinstance(event.fact, SessionEventsLost) and event.fact.workspace:
        owner = {"workspace": event.fact.workspace}
    if row.status == "cancelled" or (row.status in ("done", "failed") and not event.fact.reopens):
        return owner
    return {"status": "runnable", "reason": "", "detail": "", **_due(event.at_us), **owner}


def _owner(fact: Fact) -> dict[str, object]:
    return {"owner": fact.owner} if isinstance(fact, SessionUpdated) and fact.owner is not None else {}


def _ended(ended: ShiftEnded, at_us: int) -> dict[str, object]:
    released = ended.status == "released"
    return {
        "holder": "",
        "status": "runnable" if released else ended.status,
        "reason": ended.reason or "",
        "detail": ended.detail,
        **(_due(at_us) if released else _due(ended.due_us, ended.boot_id, ended.booted_us)),
    }


def _seen(row: SessionRow, fact: ApprovalSeen, expires_us: int) -> dict[str, object]:
    """Move the due time to the item's expiry. Uses the clock reading at the wait's start: too early at worst."""
    if row.due_us is None:
        return _due(expires_us, fact.boot_id, fact.booted_us)
    if expires_us >= row.due_us:
        return {}
    booted_us = row.due_us - row.due_boot_us if row.due_boot_us is not None else 0
    return _due(expires_us, row.boot_id, booted_us)


def _due(due_us: int | None, boot_id: str = "", booted_us: int = 0) -> dict[str, object]:
    known = due_us is not None and bool(boot_id)
    return {
        "due_us": due_us,
        "boot_id": boot_id if known else "",
        "due_boot_us": due_us - booted_us if due_us is not None and known else None,
    }


ItemStatus = Literal["open", "approved", "denied", "expired", "superseded"]


def shared_accounts(row: SessionRow) -> tuple[str, ...]:
    """Return the accounts that a session shares with other trees: those that follow the root's own in its path."""
    return row.accounts[row.accounts.index(row.root) + 1 :] if row.root in row.accounts else ()


def in_turns(due: Iterable[tuple[Hashable, T]]) -> list[T]:
    """Order due sessions so that those who pay take turns: the first of each, then the second of each, and so on.

    Each comes with the accounts that it shares with other trees, in any form; those without one count as one.
    """
    before, ranked = Counter[Hashable](), list[tuple[int, T]]()
    for payer, each in due:
        ranked.append((before[payer], each))
        before[payer] += 1
    ranked.sort(key=lambda pair: pair[0])
    return [each for _, each in ranked]


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One inbox item. `seq` is the event that opened it, which has the rest.

    `closed_seq` is the event that gave it its last status, None while it is open; `seen_us` is when an approver was
    first shown it.
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
"""Facts that change an item; each names it in `item_id`."""

ANSWERS = (ApprovalDecided, ApprovalExpired)
"""Facts of which an item has at most one: the first wins."""

_ITEM_TYPES = frozenset(ITEM_FACTS)


def item_key(item_id: str) -> str:
    """Return the key under which an item's decision and its expiry are posted: only one fits (S21)."""
    return f"item:{item_id}"


def item_of(event: Event) -> str | None:
    """Return the id of the item that an event changes, None for any other event."""
    fact = event.fact
    if type(fact) not in _ITEM_TYPES:
        return None
    assert isinstance(fact, ITEM_FACTS)
    return fact.item_id


def next_item(item: ItemRow | None, event: Event) -> ItemRow | None:
    """Return the item after one more event that names it; None before it is opened."""
    fact = event.fact
    if isinstance(fact, ApprovalRequested):
        return item or _item_opened(fact, event)
    if item is None or item.session_id != event.session_id:
        return item
    match fact:
        case ApprovalSeen():
            return _item_seen(item, fact, event)
        case ApprovalSuperseded() if item.status in ("open", "approved"):
            return replace(item, status="superseded", closed_seq=event.seq)
        case ApprovalDecided(verdict=verdict) if item.status == "open":
            return replace(item, status="approved" if verdict == "approve" else "denied", closed_seq=event.seq)
        case ApprovalExpired() if item.status == "open":
            return replace(item, status="expired", closed_seq=event.seq)
        case _:
            return item


def _item_seen(item: ItemRow, fact: ApprovalSeen, event: Event) -> ItemRow:
    if item.seen_us is not None:
        return item
    late = item.expires_us is not None and fact.expires_us is not None
    expires_us = max(item.expires_us or 0, fact.expires_us or 0) if late else item.expires_us
    return replace(item, seen_us=event.at_us, expires_us=expires_us)


def _item_opened(fact: ApprovalRequested, event: Event) -> ItemRow:
    return ItemRow(
        item_id=fact.item_id,
        session_id=event.session_id,
        seq=event.seq,
        kind=fact.kind,
        title=fact.title,
        opened_us=event.at_us,
        expires_us=fact.expires_us,
    )
