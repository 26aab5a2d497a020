"""Shifts, children, budgets, breakers, and emergency stops."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact

ParkReason = Literal["person", "budget", "cap", "timer", "provider", "child", "context", "job"]
"""Reason why a parked session waits. `cap` is a count (turns), `context` the token limit."""

ShiftStatus = Literal["parked", "done", "failed", "cancelled", "released"]
"""Outcome of a shift. `released` leaves the session runnable: the process was asked to stop."""


class ShiftStarted(Fact, frozen=True, tag="shift.started"):
    """A brain took the lease. Its epoch is the event's own.

    `booted_us` is the wall time of the boot `boot_id`: now minus the uptime. It differs between two events of one boot
    when the wall clock was set; 0 when unknown. `up_us` is that uptime, 0 in logs before schema 6: with the time of the
    event it shows whether the clock was set between the reading and the append. `place` is the worker's home, where
    several share a log; empty where there is one.
    """

    worker_id: str
    host_id: str
    boot_id: str
    pid: int
    program: str
    agent_digest: str = ""
    prompt_digests: dict[str, str] = {}
    booted_us: int = 0
    up_us: int = 0
    place: str = ""


class ClockSet(Fact, frozen=True, tag="clock.set"):
    """The wall clock was set while a brain held the session; `booted_us` and `up_us` are as in `shift.started`."""

    boot_id: str
    booted_us: int
    up_us: int = 0


class LeaseStolen(Fact, frozen=True, tag="lease.stolen"):
    """A user took the lease from a process that still held it. Precedes `shift.started`."""

    from_worker_id: str
    from_epoch: int


class ShiftEnded(Fact, frozen=True, tag="shift.ended"):
    """A brain released the session, and why. `due_us` is when a timer wakes it, if one does.

    With `due_us`, `boot_id`, `booted_us`, and `up_us` describe the wall clock, as in `shift.started`.
    """

    status: ShiftStatus
    reason: ParkReason | None = None
    detail: str = ""
    due_us: int | None = None
    boot_id: str = ""
    booted_us: int = 0
    up_us: int = 0


class ChildOpened(Fact, frozen=True, tag="child.opened"):
    """A child was opened, in the same transaction as its own first event (S4)."""

    child_id: str
    call_id: str
    goal: str
    name: str = ""
    budget_pico: int | None = None


class ChildMessaged(Fact, frozen=True, tag="child.messaged"):
    """The agent sent a message to a child, in the same transaction as the child's `user.message`."""

    child_id: str
    call_id: str
    text: str


class ChildCancelled(Fact, frozen=True, tag="child.cancelled"):
    """A child was cancelled, in the same transaction as the child's `user.cancel`."""

    child_id: str
    call_id: str = ""


class ChildFinished(Fact, frozen=True, tag="child.finished"):
    """A child parked or ended. Posted by the transaction that ended the child's shift, once per shift.

    `status` is `parked` only for a child that its parent or a user must move on (a cap, its context). `summary` is its
    last message, as data. `untrusted` means that it had read untrusted content. `submitted` is what a role of a mission
    handed in; `commit` and `tree` are the harness's commit of its work.
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


Period = Literal["total", "day", "week"]
"""Period that a cap covers: everything, the last 24 hours, or the last seven days."""


LimitScope = Literal["account", "model"]
"""Sessions that a limit covers: those that draw on an account, or those of a model."""


class BudgetSet(Fact, frozen=True, tag="budget.set"):
    """A cap of an account was set, or removed with None."""

    wakes = True

    account_id: str
    period: Period
    cap_pico: int | None = None


class LimitSet(Fact, frozen=True, tag="limit.set"):
    """A limit was set for the sessions of an account or for those of a model; it replaces an earlier one.

    `running` is how many of them may run at a time. `per_minute` is how many model requests they may begin in a minute,
    and `burst` how many of these at once, 0 for one. None is no limit.
    """

    scope: LimitScope
    name: str
    running: int | None = None
    per_minute: int | None = None
    burst: int = 0


class BudgetReached(Fact, frozen=True, tag="budget.reached"):
    """A request did not fit under a cap; nothing was spent."""

    account_id: str
    period: Period
    cap_pico: int
    left_pico: int
    wanted_pico: int


class BreakerOpened(Fact, frozen=True, tag="breaker.opened"):
    """A breaker opened after too many failures or too fast a spend. It stays open until `until_us` or until a user
    closes it.

    `breaker` is `spend_rate`, `tool_failures`, `no_progress`, or `provider:NAME`.
    """

    breaker: str
    detail: str
    until_us: int | None = None


class BreakerClosed(Fact, frozen=True, tag="breaker.closed"):
    """The breaker closed: a request succeeded, or a user said to go on."""

    breaker: str
    detail: str = ""


class EmergencyStopped(Fact, frozen=True, tag="emergency.stopped"):
    """Nothing starts any more, and running sessions stop at their next safe boundary. Written to `ses_home`."""

    reason: str = ""


class EmergencyReleased(Fact, frozen=True, tag="emergency.released"):
    """The emergency stop at `stop_seq` is lifted."""

    stop_seq: int
    reason: str = ""


class RemovedSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A removed session, with the head of its log and that event's hash in hex."""

    session_id: str
    head: int
    hash: str


class SpendBucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The spend of one bucket of time of the ledger, in pico-dollars."""

    number: int
    pico: int


class CarriedAccount(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """An account that outlives removed sessions: what they spent on it, and its caps when they were removed.

    `fine` and `hours` are the recent part of the spend, in the buckets of the ledger; `caps_us` is when a cap was last
    set.
    """

    account_id: str
    spent_pico: int
    fine: tuple[SpendBucket, ...] = ()
    hours: tuple[SpendBucket, ...] = ()
    cap_pico: int | None = None
    cap_day_pico: int | None = None
    cap_week_pico: int | None = None
    caps_us: int = 0


class SessionsRemoved(Fact, frozen=True, tag="sessions.removed"):
    """A user removed sessions with their events. Written to `ses_home`, so that the removal does not look like a loss.

    `accounts` carry on what the sessions had spent on shared accounts.
    """

    sessions: tuple[RemovedSession, ...]
    accounts: tuple[CarriedAccount, ...] = ()


class BriefRead(Fact, frozen=True, tag="brief.read"):
    """A user has read the brief up to `through_us`; the next brief begins there."""

    through_us: int
