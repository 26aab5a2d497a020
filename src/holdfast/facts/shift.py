"""When a brain held a session."""

from __future__ import annotations

from typing import Literal

from holdfast.facts.base import Fact

ParkReason = Literal["person", "budget", "cap", "timer", "provider", "child", "context", "job"]
"""Why a parked session waits. `cap` is a count (turns), `context` the token line."""

ShiftStatus = Literal["parked", "done", "failed", "cancelled", "released"]
"""How a shift ended. `released` leaves the session runnable: the process was asked to stop."""


class ShiftStarted(Fact, frozen=True, tag="shift.started"):
    """A brain took the lease. Its epoch is the event's own."""

    worker_id: str
    host_id: str
    boot_id: str
    pid: int
    program: str
    agent_digest: str = ""
    prompt_digests: dict[str, str] = {}


class LeaseStolen(Fact, frozen=True, tag="lease.stolen"):
    """A person took the lease from a process that still held it; it stands before `shift.started`."""

    from_worker_id: str
    from_epoch: int


class ShiftEnded(Fact, frozen=True, tag="shift.ended"):
    """A brain gave the session back, and why. `due_us` is when a timer wakes it, if one does."""

    status: ShiftStatus
    reason: ParkReason | None = None
    detail: str = ""
    due_us: int | None = None
