"""Use cases that change sessions on behalf of one caller: open, post, answer, steer (S3)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.errors import UsageError
from holdfast.facts.base import Block, Text
from holdfast.facts.people import UserCancel, UserInterrupt, UserMessage, UserPause, UserResume
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.shift import BudgetSet, EmergencyReleased, EmergencyStopped, LimitScope, LimitSet, Period
from holdfast.facts.union import AnyFact
from holdfast.ids import new_session_id
from holdfast.log.base import PostReceipt, Which
from holdfast.service.answers import Answers, check_cap
from holdfast.service.posting import Caller, person
from holdfast.session.decide.waits import STOPPED
from holdfast.session.home import HOME, Stop
from holdfast.session.limits import Limit, Limits, decode
from holdfast.session.rows import SessionRow

OVER = ("done", "failed", "cancelled")
"""Statuses of a session that has ended: it cannot be paused or transferred."""

MOST = 1_000_000
"""Largest number in a limit."""

WITHIN: dict[Period, str] = {"total": "", "day": " within the last 24 hours", "week": " within the last seven days"}


class Stopping(msgspec.Struct, frozen=True):
    """An emergency stop, whether it was in force before, and the sessions that it pauses."""

    stop: Stop
    before: bool
    resting: tuple[SessionRow, ...]


class Intake(Answers):
    """The use cases that need only the log. Each one is a post: ordered, unfenced, and once per key."""

    def acting_as(self, caller: Caller) -> Intake:
        """Return the same use cases for another caller."""
        return Intake(self.log, self.index, self.clock, self.entropy, caller, self.boot_id)

    def new_session_id(self) -> str:
        """Return an id for a session that is about to be opened: its workspace may need it first."""
        return new_session_id(self.clock.now_us(), self.entropy)

    async def open(self, session_id: str, created: SessionCreated) -> PostReceipt:
        """Append the first event of a session; `service.opening` has the whole use case.

        With a `key` already in use, the receipt is a duplicate naming its session."""
        if not created.goal.strip():
            raise UsageError('the goal is empty; state one, for example: holdfast run "fix the failing test"')
        return await self.log.post(self.drafted(session_id, created, key="created"), create=True)

    # --- messages -----------------------------------------------------------------------------------

    async def send(
        self, session: SessionRow, text: str, *, attachments: tuple[Block, ...] = (), key: str = ""
    ) -> PostReceipt:
        """Post a user's message. With a `key`, a second one of that key is dropped."""
        if not text.strip() and not attachments:
            raise UsageError("the message is empty; add text, for example: holdfast send ID 'use tabs'")
        words = (Text(text),) if text.strip() else ()
        return await self._post(session, UserMessage(content=(*words, *attachments)), key)

    async def interrupt(self, session: SessionRow, reason: str = "", key: str = "") -> PostReceipt:
        """Interrupt the agent at once; the session then waits for a message."""
        return await self._post(session, UserInterrupt(reason=reason), key)

    async def cancel(self, session: SessionRow, reason: str = "", key: str = "") -> PostReceipt:
        """End the session for good."""
        return await self._post(session, UserCancel(reason=reason), key)

    async def update(self, session: SessionRow, change: SessionUpdated) -> PostReceipt:
        """Change limits or policies of a session."""
        return await self._post(session, change)

    async def check_cap(self, session: SessionRow, cap_pico: int) -> None:
        """Raise `UsageError` for a cap of the session's own account below the spend."""
        account = await self.index.account(session.accounts[0]) if session.accounts else None
        if account is not None:
            check_cap(account, cap_pico, account.spent_pico)

    # --- steering -----------------------------------------------------------------------------------

    async def pause(self, session: SessionRow, reason: str = "", key: str = "") -> PostReceipt:
        """Pause the session at its next safe boundary, until it is resumed."""
        _check_unfinished(session, "pause")
        return await self.post(session.session_id, UserPause(reason=reason), key)

    async def resume(self, session: SessionRow, reason: str = "", key: str = "") -> PostReceipt:
        """Lift a pause."""
        return await self.post(session.session_id, UserResume(reason=reason), key)

    async def ask_again(self, session: SessionRow) -> PostReceipt:
        """Let a session that a failed model request ended make it again."""
        return await self.post(session.session_id, SessionUpdated())

    async def hand_over(self, session: SessionRow, name: str) -> PostReceipt:
        """Transfer the session to another user, who answers its inbox items unless the policy names approvers."""
        owner = person(name)
        if not owner or not owner.isprintable() or any(char.isspace() for char in owner):
            raise UsageError(f"{name!r} is not a user name; for example: holdfast handover {session.session_id} anna")
        _check_unfinished(session, "hand over")
        return await self.post(session.session_id, SessionUpdated(owner=owner))

    async def check_caps(self, account_id: str, caps: Mapping[Period, int | None]) -> None:
        """Raise `UsageError` when one of these caps is below the spend within its period."""
        account = await self.index.account(account_id) if caps else None
        for period, cap_pico in caps.items():
            if account is not None and cap_pico is not None:
                check_cap(account, cap_pico, account.spent_in(period, self.clock.now_us()), WITHIN[period])

    async def set_cap(
        self, session: SessionRow | None, account_id: str, period: Period, cap_pico: int | None
    ) -> PostReceipt:
        """Set a cap of an account, or lift it with None, in the log of `session` or in the home's.

        Wakes sessions that wait for budget of that account. Raises `UsageError` for a cap below the spend.
        """
        await self.check_caps(account_id, {period: cap_pico})
        fact = BudgetSet(account_id=account_id, period=period, cap_pico=cap_pico)
        receipt = await self.post(session.session_id if session else HOME, fact)
        await self.wake_for_money(account_id, f"the cap of {account_id} was changed")
        return receipt

    async def limits(self) -> Limits:
        """Return the limits in force, by the name of what they cover."""
        home = await self.index.sessions(Which(ids=frozenset({HOME})), home=True)
        return decode(home[0].marks) if home else {}

    async def set_limit(self, scope: LimitScope, name: str, limit: Limit) -> PostReceipt:
        """Set a limit for the sessions of an account or a model, in place of an earlier one.

        Raises `UsageError` for numbers that limit nothing sensibly.
        """
        for what, least, number in (
            ("--running", 0, limit.running),
            ("--rate", 1, limit.per_minute),
            ("--burst", 1, limit.burst),
        ):
            if number is not None and not least <= number <= MOST:
                raise UsageError(f"{what} {number} is not a number from {least} to {MOST}")
        fact = LimitSet(scope=scope, name=name, running=limit.running, per_minute=limit.per_minute, burst=limit.burst)
        return await self.post(HOME, fact)

    async def stop_all(self, reason: str = "") -> Stopping:
        """Stop everything: no shift starts, and running ones pause at their next safe boundary. Safe to repeat."""
        stop = await self.index.stopped()
        before = stop is not None
        if stop is None:
            await self.post(HOME, EmergencyStopped(reason=reason))
            stop = await self.index.stopped()
            assert stop is not None
        # A parked session cannot start while the stop is in force, and keeps its wait.
        resting = await self.index.sessions(Which(status="runnable"))
        for row in resting:
            fact = UserPause(reason=reason or "emergency stop", stop_seq=stop.seq)
            await self.post(row.session_id, fact, f"stop:{stop.seq}")
        return Stopping(stop, before, tuple(resting))

    async def release(self, reason: str = "") -> tuple[Stop | None, list[SessionRow]]:
        """Lift the emergency stop. Return it, if one was in force, and the sessions that continue. Safe to repeat."""
        stop = await self.index.stopped()
        if stop is not None:
            await self.post(HOME, EmergencyReleased(stop_seq=stop.seq, reason=reason), f"release:{stop.seq}")
        paused = await self.index.sessions(Which(reason="person"))
        stopped = [row for row in paused if row.detail == STOPPED]
        if stop is not None:
            stopped += await self.index.sessions(Which(status="runnable"))
        for row in stopped:
            key = f"release:{stop.seq}" if stop else ""
            await self.resume(row, reason or "the emergency stop is lifted", key)
        return stop, stopped

    async def _post(self, session: SessionRow, fact: AnyFact, key: str = "") -> PostReceipt:
        if session.status == "cancelled":
            raise UsageError(
                f"session {session.session_id} was cancelled and accepts nothing more; "
                "start a new one in the same workspace with `holdfast run`"
            )
        return await self.post(session.session_id, fact, key)


def _check_unfinished(row: SessionRow, what: str) -> None:
    if row.status in OVER:
        raise UsageError(
            f"{row.key or row.session_id} is {row.status}: there is nothing to {what}; `holdfast ps` lists sessions"
        )
