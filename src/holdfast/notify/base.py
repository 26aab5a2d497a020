"""The notification interface: targets send notices, reply channels receive replies; quiet hours.

A notice contains no secret: it is made from the log, and no event contains one. It shows the action that an agent
requests to everyone who can read the target.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.clock import Clock
from holdfast.errors import NotifyError, UsageError
from holdfast.facts.people import Verdict

NoticeKind = Literal["approval", "reminder", "escalation", "finished", "failed", "test"]
"""Reason for a notice: a new item, a reminder, a notice to a second approver, the end of a session, or a test."""

KEY_BYTES = 32
"""Shortest key, in bytes."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message to a user; `notify.notices` makes those for items and for ended sessions.

    `notice_id` is the same for all tries to send it, so that the receiver can detect repeats. `body` is plain text: the
    exact action, the reason, cost so far, expiry, and the default. `action_digest` binds a reply to that action (S21);
    without it the notice has no buttons. `at_us` is the time of the cause, not of the sending. `commands` are the
    commands that answer the item.
    """

    notice_id: str
    kind: NoticeKind
    session_id: str
    title: str
    body: str
    at_us: int
    session_name: str = ""
    item_id: str = ""
    action_digest: str = ""
    expires_us: int | None = None
    commands: tuple[str, ...] = ()


def notice_id(session_id: str, target: str, *occasion: str) -> str:
    """Return the id of the notice of an `occasion` (an item and its round, or the end of a session) to a target.

    It is derived from its arguments, so a process that restarts after a crash sends the same id.
    """
    named = msgspec.json.encode([session_id, target, *occasion])
    return f"ntc_{hashlib.sha256(named).hexdigest()[:32]}"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An authentic reply. The caller checks if the item is still open.

    `digest` is the digest of the action that was shown. `who` is the owner of the channel, as events name actors. `id`
    is the carrier's id of the message, which may be delivered twice. `cursor` continues right after this reply.
    """

    session_id: str
    item_id: str
    verdict: Verdict
    digest: str
    who: str
    id: str
    cursor: str
    note: str = ""


class Replies(msgspec.Struct, frozen=True):
    """Result of polling a channel, oldest reply first.

    `cursor` continues after all messages read, including refused ones. `refused` counts messages that were forged,
    damaged, too late, or repeated within this poll.
    """

    found: tuple[Reply, ...]
    cursor: str
    refused: int = 0


class Target(Protocol):
    """A receiver of notices."""

    @property
    def name(self) -> str:
        """The configured name. The address is never shown, since it may contain a secret."""
        ...

    async def send(self, notice: Notice) -> None:
        """Send the notice. Raises `NotifyError`; the receiver may have received the notice nevertheless."""
        ...


class ReplyChannel(Protocol):
    """A source of replies. Reading removes nothing: the caller keeps the cursor."""

    @property
    def name(self) -> str:
        """The configured name."""
        ...

    async def replies(self, since: str) -> Replies:
        """Return the replies after the cursor `since`; empty for the beginning. Raises `NotifyError`.

        A cursor that the carrier no longer knows starts at the beginning, so a reply can come twice. Replies are posted
        under the key of their item, so the first one wins (S21).
        """
        ...


EXAMPLE = "22:00-07:00 Europe/Zurich"
"""Example for error messages."""

_FORM = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2}) +([A-Za-z0-9_+/-]+)")

_MINUTE_US = 60 * 1_000_000

_LONGEST_MINUTES = 3 * 24 * 60
"""Longest quiet time: a time zone may skip a day (Samoa, 2011), never two."""


class QuietHours(NamedTuple):
    """Quiet hours from `start` to before `end`, minutes after midnight in `zone`; `start` may be later than `end`."""

    start: int
    end: int
    zone: tzinfo

    def holds(self, at_us: int) -> bool:
        """Return True if the time is within the quiet hours."""
        local = datetime.fromtimestamp(at_us // 1_000_000, UTC).astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse_quiet(spec: str) -> QuietHours:
    """Parse quiet hours such as `22:00-07:00 Europe/Zurich`. Raises `UsageError`."""
    found = _FORM.fullmatch(spec.strip())
    if found is None:
        raise _wrong(spec, "expected two times of day and a time zone")
    hours = [int(found[index]) for index in (1, 3)]
    minutes = [int(found[index]) for index in (2, 4)]
    if max(hours) > 23 or max(minutes) > 59:
        raise _wrong(spec, "a time of day goes from 00:00 to 23:59")
    start, end = (hour * 60 + minute for hour, minute in zip(hours, minutes, strict=True))
    if start == end:
        raise _wrong(spec, "it would be quiet all day, and no notice would ever be sent")
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # few users have quiet hours

    try:
        zone = ZoneInfo(found[5])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None:
        raise _wrong(spec, f"unknown time zone {found[5]!r}")
    return QuietHours(start, end, zone)


def quiet_until(now_us: int, spec: str) -> int | None:
    """Return the end of the current quiet hours, in microseconds; None outside quiet hours.

    Quiet hours follow local time. An end inside the hour that daylight saving time skips moves to the change. In the
    hour that is repeated, quiet hours can occur twice.
    """
    hours = parse_quiet(spec)
    if not hours.holds(now_us):
        return None
    minute = now_us // _MINUTE_US
    for later in range(minute + 1, minute + _LONGEST_MINUTES):
        if not hours.holds(later * _MINUTE_US):
            return later * _MINUTE_US
    raise _wrong(spec, "it does not end")


def _wrong(spec: str, what: str) -> UsageError:
    return UsageError(f"the quiet hours {spec!r} are invalid: {what}; example: {EXAMPLE}")


@dataclass(frozen=True)
class Outlet:
    """A configured target. `user` is its owner, empty for a shared one; `quiet` its quiet hours."""

    target: Target
    user: str = ""
    quiet: str = ""
    channel: ReplyChannel | None = None

    @property
    def name(self) -> str:
        """The target's configured name."""
        return self.target.name

    def held_until_us(self, now_us: int) -> int | None:
        """Return the end of the current quiet hours; None if a notice may be sent now."""
        return quiet_until(now_us, self.quiet) if self.quiet else None


@dataclass(frozen=True)
class Delivery:
    """Result of sending a notice, with text that is safe to store in an event."""

    ok: bool
    detail: str = ""
    retryable: bool = False
    retry_after_s: float | None = None


async def deliver(target: Target, notice: Notice) -> Delivery:
    """Send a notice and return the result; a failing target does not affect a session."""
    try:
        await target.send(notice)
    except NotifyError as error:
        return Delivery(False, str(error), error.retryable, error.retry_after_s)
    return Delivery(True)


async def send_test(target: Target, clock: Clock) -> Delivery:
    """Send a test notice."""
    now_us = clock.now_us()
    notice = Notice(
        notice_id=notice_id("test", target.name, str(now_us)),
        kind="test",
        session_id="test",
        title="Holdfast: a test",
        body=f"This is a test of the notification target {target.name}. No answer is needed.",
        at_us=now_us,
    )
    return await deliver(target, notice)
