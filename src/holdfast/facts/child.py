"""Sessions that a session opened, and what came back from them (S4)."""

from __future__ import annotations

from typing import Any, Literal

from holdfast.facts.base import Fact
from holdfast.facts.shift import ParkReason


class ChildOpened(Fact, frozen=True, tag="child.opened"):
    """A child was opened, in the same transaction as its own first event."""

    child_id: str
    call_id: str
    goal: str
    name: str = ""
    budget_pico: int | None = None


class ChildMessaged(Fact, frozen=True, tag="child.messaged"):
    """The agent said something to a child, in the same transaction as the child's `user.message`."""

    child_id: str
    call_id: str
    text: str


class ChildCancelled(Fact, frozen=True, tag="child.cancelled"):
    """A child was cancelled, in the same transaction as the child's `user.cancel`."""

    child_id: str
    call_id: str = ""


class ChildFinished(Fact, frozen=True, tag="child.finished"):
    """A child came to rest. Posted by the transaction that ended the child's shift, once per shift.

    `status` is `parked` only for a child that nothing but its parent or a person can move (a cap, its
    context); `summary` is its last message, as data. `untrusted` says that it had read what strangers may have written.
    `submitted` is what a role of a mission handed in, `commit` and `tree` what the harness committed of its work.
    """

    wakes = True

    child_id: str
    status: Literal["done", "failed", "cancelled", "parked"]
    reason: ParkReason | None = None
    summary: str = ""
    detail: str = ""
    cost_pico: int | None = None
    turns: int = 0
    untrusted: bool = False
    submitted: dict[str, Any] = {}
    commit: str = ""
    tree: str = ""
