"""Targets with what the configuration says around them: whose they are, and when they are silent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.errors import NotifyError
from holdfast.notify.base import Notice, ReplyChannel, Target, notice_id
from holdfast.notify.quiet import quiet_until


@dataclass(frozen=True)
class Outlet:
    """One configured target. `user` is whose device it is, empty for a shared one; `quiet` its quiet hours."""

    target: Target
    user: str = ""
    quiet: str = ""
    channel: ReplyChannel | None = None

    @property
    def name(self) -> str:
        """The target's configured name."""
        return self.target.name

    def held_until_us(self, now_us: int) -> int | None:
        """When the quiet of now is over; None when it may be told now."""
        return quiet_until(now_us, self.quiet) if self.quiet else None


@dataclass(frozen=True)
class Delivery:
    """How a sending ended, in words that may stand in an event."""

    ok: bool
    detail: str = ""
    retryable: bool = False
    retry_after_s: float | None = None


def addressed(outlets: Sequence[Outlet], people: Collection[str]) -> list[Outlet]:
    """Those that reach `people` (`ann` or `user:ann`): theirs and the shared ones; all when nobody is named."""
    names = {person.removeprefix("user:") for person in people}
    return [outlet for outlet in outlets if not names or not outlet.user or outlet.user in names]


async def deliver(target: Target, notice: Notice) -> Delivery:
    """Send, and say how it went: a target that is down changes nothing for a session."""
    try:
        await target.send(notice)
    except NotifyError as error:
        return Delivery(False, str(error), error.retryable, error.retry_after_s)
    return Delivery(True)


async def send_test(target: Target, clock: Clock) -> Delivery:
    """Send a notice that asks for nothing, for a person to see whether it arrives."""
    now_us = clock.now_us()
    notice = Notice(
        notice_id=notice_id("test", target.name, str(now_us)),
        kind="test",
        session_id="test",
        title="Holdfast: a test",
        body=f"This is a test of the notification target {target.name}. Nothing waits for you.",
        at_us=now_us,
    )
    return await deliver(target, notice)
