"""The rows beside the events: what follows from a session's events for lists, wakes and money (S20).

The log calls these in its append transaction; `verify` calls them again from the first event and
compares.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage
from holdfast.session.money import path_of

RowStatus = Literal["runnable", "parked", "done", "failed", "cancelled"]
"""Where a session stands when nobody holds it. `running` is derived from a live lease (S5)."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One session at a glance. `holder` is the worker of a shift that has not ended, live or dead.

    `due_us` is when it should be looked at, None for never; `cost_pico` is what is known of its cost.
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


class AccountRow(msgspec.Struct, frozen=True):
    """A money account: what is spent, what is held for open requests, and the cap over both."""

    account_id: str
    cap_pico: int | None
    spent_pico: int
    reserved_pico: int


_GOAL_LENGTH = 200


def first_row(event: Event) -> SessionRow:
    """The row of a session whose first event is this `session.created`."""
    fact = event.fact
    assert isinstance(fact, SessionCreated)
    return SessionRow(
        session_id=event.session_id,
        key=fact.key,
        goal=" ".join(fact.goal.split())[:_GOAL_LENGTH],
        model=fact.agent.model,
        workspace=fact.workspace.path,
        accounts=path_of(fact, event.session_id),
        created_us=event.at_us,
        updated_us=event.at_us,
        head=event.seq,
        head_hash=event.hash,
        epoch=event.epoch,
        due_us=event.at_us,
    )


def next_row(row: SessionRow, event: Event) -> SessionRow:
    """The row after one more event."""
    changes = _changes(row, event)
    return msgspec.structs.replace(
        row, head=event.seq, head_hash=event.hash, epoch=event.epoch, updated_us=event.at_us, **changes
    )


def _changes(row: SessionRow, event: Event) -> dict[str, object]:
    match event.fact:
        case UserMessage() | UserInterrupt() | UserCancel() | SessionUpdated():
            if row.status == "cancelled":
                return {}
            return {"status": "runnable", "reason": "", "detail": "", "due_us": event.at_us}
        case ShiftStarted(worker_id=worker):
            return {"holder": worker, "status": "runnable", "reason": "", "detail": "", "due_us": event.at_us}
        case ShiftEnded() as ended:
            status = "runnable" if ended.status == "released" else ended.status
            due = event.at_us if ended.status == "released" else ended.due_us
            return {
                "holder": "",
                "status": status,
                "reason": ended.reason or "",
                "detail": ended.detail,
                "due_us": due,
            }
        case ModelRequestEnd() as end:
            usage = end.usage
            return {
                "turns": row.turns + (end.outcome == "ok"),
                "cost_pico": row.cost_pico + (end.cost_pico or 0),
                "input_tokens": row.input_tokens + (usage.input_tokens if usage else 0),
                "output_tokens": row.output_tokens + (usage.output_tokens if usage else 0),
            }
        case _:
            return {}
