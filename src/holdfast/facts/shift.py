"""When a brain held a session."""

from __future__ import annotations

from typing import Literal

from holdfast.facts.base import Fact

ParkReason = Literal["person", "budget", "cap", "timer", "provider", "child", "context", "job"]
"""Why a parked session waits. `cap` is a count (turns), `context` the token line."""

ShiftStatus = Literal["parked", "done", "failed", "cancelled", "released"]
"""How a shift ended. `released` leaves the session runnable: the process was asked to stop."""


class ShiftStarted(Fact, frozen=True, tag="shift.started"):
    """A brain took the lease. Its epoch is the event's own.

    `booted_us` is the wall time of the boot `boot_id`: now minus the uptime. It differs between two events of one boot
    when the wall clock was set; 0 when it is not known. `up_us` is that uptime, 0 in logs from before schema 6: with
    the time of the event it shows whether the clock was set between the reading and the append.
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


class ClockSet(Fact, frozen=True, tag="clock.set"):
    """The wall clock was set while a brain held the session; `booted_us` and `up_us` are as in `shift.started`."""

    boot_id: str
    booted_us: int
    up_us: int = 0


class LeaseStolen(Fact, frozen=True, tag="lease.stolen"):
    """A person took the lease from a process that still held it; it stands before `shift.started`."""

    from_worker_id: str
    from_epoch: int


class ShiftEnded(Fact, frozen=True, tag="shift.ended"):
    """A brain gave the session back, and why. `due_us` is when a timer wakes it, if one does.

    With `due_us`, `boot_id`, `booted_us`, and `up_us` say how the wall clock stood then, as in `shift.started`.
    """

    status: ShiftStatus
    reason: ParkReason | None = None
    detail: str = ""
    due_us: int | None = None
    boot_id: str = ""
    booted_us: int = 0
    up_us: int = 0
