"""The rig that an implementation under test provides, and helpers for writing checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.facts.base import Text, Usage
from holdfast.facts.codec import Draft, Event
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalDecided, ApprovalRequested, UserMessage, Verdict
from holdfast.facts.session import Agent, Limits, Parent, People, SessionCreated, Workspace
from holdfast.facts.shift import (
    BudgetSet,
    EmergencyReleased,
    EmergencyStopped,
    ParkReason,
    Period,
    ShiftEnded,
    ShiftStarted,
)
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.log.base import Index, Lease, Leases, Log, Post, PostReceipt, Snapshots
from holdfast.log.verify import Beside, Source, rebuild, verify
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow, item_key

E = TypeVar("E", bound=HoldfastError)


class Store(Log, Snapshots, Leases, Index, Source, Protocol):
    """All doors of the log behind one object."""

    async def beside(self) -> Beside:
        """The log's rows beside its events."""
        ...


class Rig(Protocol):
    """A fresh, empty store, and control over the machine it runs on."""

    @property
    def store(self) -> Store:
        """The store under test."""
        ...

    def worker(self) -> str:
        """Start a worker and return its id."""
        ...

    def kill(self, worker_id: str) -> None:
        """End that worker's process."""
        ...

    def advance(self, seconds: float) -> None:
        """Move the store's clock, backward if negative."""
        ...

    async def rewrite(self, session_id: str, seq: int, body: bytes | None) -> None:
        """Replace the stored bytes of an event's body, bypassing the store; None leaves a tombstone."""
        ...


Check = Callable[[Rig], Awaitable[None]]


LATER_US = 2**52
"""A wall time long after every event of a check."""


class JumpingClock(SystemClock):
    """The system clock with an adjustable offset, for the store of a rig."""

    def __init__(self) -> None:
        self._off_us = 0

    def now_us(self) -> int:
        """The time, shifted by the total of all `advance` calls."""
        return super().now_us() + self._off_us

    def advance(self, seconds: float) -> None:
        """Shift the clock."""
        self._off_us += round(seconds * 1e6)


class Scenario:
    """Helpers for checks: facts, drafts with ascending ids, sessions, and shifts."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.store = rig.store
        self._count = 0

    def draft(self, fact: AnyFact, actor: str = "brain") -> Draft:
        """A draft with a new id."""
        return Draft(self.next_id(), actor, fact)

    def next_id(self) -> str:
        """The id of the next draft."""
        self._count += 1
        return f"evt_{self._count:026d}"

    def created(
        self,
        goal: str = "mend it",
        *,
        key: str = "",
        accounts: Sequence[str] = (),
        cap: int | None = None,
        parent: Parent | None = None,
        owner: str = "",
    ) -> Draft:
        """A `session.created`."""
        created = SessionCreated(
            goal=goal,
            agent=Agent(model="scripted:x"),
            workspace=Workspace(path="/srv/work"),
            limits=Limits(budget_pico=cap),
            key=key,
            accounts=tuple(accounts),
            parent=parent,
            people=People(owner=owner),
        )
        return self.draft(created)

    async def open(
        self, session_id: str = "ses_a", *, key: str = "", accounts: Sequence[str] = (), cap: int | None = None
    ) -> PostReceipt:
        """Open a new session."""
        return await self.store.post(
            Post(session_id, "created", self.created(key=key, accounts=accounts, cap=cap)), create=True
        )

    async def say(self, session_id: str, key: str, text: str = "go on") -> PostReceipt:
        """Post a user message."""
        return await self.store.post(Post(session_id, key, self.message(text)))

    def message(self, text: str = "go on") -> Draft:
        """A user message."""
        return self.draft(UserMessage(content=(Text(text),)), "user:ann")

    def shift(self, worker_id: str) -> Draft:
        """A `shift.started` event of that worker."""
        return self.draft(ShiftStarted(worker_id=worker_id, host_id="host", boot_id="boot", pid=7, program="test"))

    async def take(self, session_id: str = "ses_a", *, worker: str = "", steal: bool = False) -> Lease:
        """Acquire the session for a worker, by default a new one."""
        return await self.store.acquire(session_id, self.shift(worker or self.rig.worker()), steal=steal)

    async def started(self, session_id: str = "ses_a", *, cap: int | None = None) -> Lease:
        """Open a new session and start a shift on it."""
        await self.open(session_id, cap=cap)
        return await self.take(session_id)

    def result(self, content: str = "done", call_id: str = "1.0") -> Draft:
        """A tool result, which is appended as a fact."""
        return self.draft(ToolResult(call_id=call_id, outcome="ok", content=content))

    def question(self, item_id: str, expires_us: int | None = None, title: str = "may it?") -> Draft:
        """An approval request."""
        asked = ApprovalRequested(
            item_id=item_id, kind="tool", title=title, action="rm -r /srv/old", expires_us=expires_us
        )
        return self.draft(asked)

    async def answer(self, session_id: str, item_id: str, verdict: Verdict = "approve") -> PostReceipt:
        """Post an approver's decision."""
        decided = self.draft(ApprovalDecided(item_id=item_id, verdict=verdict), "user:ann")
        return await self.store.post(Post(session_id, item_key(item_id), decided))

    def parked(self, reason: ParkReason = "timer", due_us: int | None = None) -> Draft:
        """A parked `shift.ended`, which is appended as a decision."""
        return self.draft(ShiftEnded(status="parked", reason=reason, due_us=due_us))

    def request(self, pico: int | None, attempt: int = 1) -> Draft:
        """A model request with a reservation."""
        return self.draft(
            ModelRequestStart(
                purpose="turn", model="m", attempt=attempt, inputs_through=1, max_output_tokens=10, reserved_pico=pico
            )
        )

    def response(self, request_seq: int, pico: int | None) -> Draft:
        """The end of a model request, which settles its reservation."""
        usage = Usage(input_tokens=10, output_tokens=5)
        return self.draft(ModelRequestEnd(request_seq=request_seq, outcome="ok", usage=usage, cost_pico=pico))

    def dispatch(self, pico: int | None) -> Draft:
        """The dispatch of a priced tool call."""
        return self.draft(
            ToolDispatched(
                call_id="1.0",
                attempt=1,
                hands_id="hnd_a",
                action_digest="d",
                on_unknown="tell",
                timeout_s=1.0,
                reserved_pico=pico,
            )
        )

    async def set_cap(
        self, account_id: str, cap_pico: int | None, period: Period = "total", session_id: str = HOME
    ) -> PostReceipt:
        """Set a cap, by default through the home's log."""
        fact = self.draft(BudgetSet(account_id=account_id, period=period, cap_pico=cap_pico), "user:ann")
        return await self.store.post(Post(session_id, f"cap.{self._count}", fact))

    async def stop(self, reason: str = "") -> PostReceipt:
        """Post an emergency stop."""
        fact = self.draft(EmergencyStopped(reason=reason), "user:ann")
        return await self.store.post(Post(HOME, f"stop.{self._count}", fact))

    async def go_on(self, stop_seq: int) -> PostReceipt:
        """Release an emergency stop."""
        fact = self.draft(EmergencyReleased(stop_seq=stop_seq), "user:ann")
        return await self.store.post(Post(HOME, f"release.{self._count}", fact))

    async def whole(self) -> None:
        """Assert that the log verifies and that its rows equal those rebuilt from its events (S20)."""
        assert (await verify(self.store)).findings == ()
        assert await rebuild(self.store) == await self.store.beside()

    async def append(
        self, lease: Lease, *drafts: Draft, head: int | None = None, posts: Sequence[Post] = ()
    ) -> list[Event]:
        """Append under a lease."""
        return await self.store.append(lease.session_id, lease.epoch, drafts, head=head, posts=posts)

    async def books(self) -> list[tuple[str, int | None, int, int]]:
        """Every account as `(account, cap, spent, reserved)`."""
        rows = await self.store.accounts()
        return [(row.account_id, row.cap_pico, row.spent_pico, row.reserved_pico) for row in rows]

    async def row(self, session_id: str = "ses_a") -> SessionRow:
        """The session's row."""
        return await self.store.find(session_id)

    async def refused(self, kind: type[E], attempt: Awaitable[object], *untouched: str) -> E:
        """Assert that `attempt` raises `kind` and moves no head of the sessions in `untouched`."""
        before = [(await self.row(name)).head for name in untouched]
        raised: E | None = None
        try:
            await attempt
        except kind as error:
            raised = error
        assert raised is not None, f"{kind.__name__} was expected and nothing was raised"
        assert str(raised), f"{kind.__name__} has no message"
        after = [(await self.row(name)).head for name in untouched]
        assert after == before, f"{kind.__name__} was raised and yet heads moved from {before} to {after}"
        return raised
