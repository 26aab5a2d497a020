"""The door to people: a notice goes out through a target, an answer comes back through a reply channel.

A notice holds no secret: it is made of what the log holds, and no event holds one. It still shows what an
agent wants to do, so whoever can read a target can read that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from holdfast.clock import Clock
from holdfast.errors import NotifyError, UsageError
from holdfast.facts.people import Verdict

NoticeKind = Literal["approval", "reminder", "escalation", "finished", "failed", "test"]
"""Why a person hears of it: an item is new, still waits, goes to a second person; a session ended; a try."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message to people; `words.py` makes those of items and of ended sessions.

    `notice_id` stays the same over all tries to send it, for the receiver to tell repeats. `body` is plain
    text: the exact action rendered, why, cost so far, expiry, and what happens by default. `action_digest`
    binds an answer to that action (S21); without one the notice cannot be answered from a button. `at_us` is
    when the cause arose, not when it is sent. `commands` are what a person may type to answer.
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
    """The id of the notice of `occasion` (an item and its round, or the end of a session) to `target`.

    It follows from what it is about, so a process that starts again after a crash sends the same id.
    """
    named = msgspec.json.encode([session_id, target, *occasion])
    return f"ntc_{hashlib.sha256(named).hexdigest()[:32]}"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is authentic. Whether the item still waits for one is the caller's to find out.

    `digest` is of the action that the person was shown. `who` is the person the channel belongs to, as events
    name actors. `id` is the carrier's name of the message; the same id may come again. `cursor` continues
    right after this reply.
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
    """What one look at a channel found, oldest first.

    `cursor` continues after everything that was read, refused messages too, so that junk is read once.
    `refused` counts messages that were forged, damaged, too late, or repeats within this look.
    """

    found: tuple[Reply, ...]
    cursor: str
    refused: int = 0


class Target(Protocol):
    """A place where notices go."""

    @property
    def name(self) -> str:
        """Its configured name. The address is never told: it may hold a secret."""
        ...

    async def send(self, notice: Notice) -> None:
        """Hand the notice over. Raises `NotifyError`; the receiver may have taken it all the same."""
        ...


class ReplyChannel(Protocol):
    """A place where answers come from. Reading takes nothing away: the caller keeps the cursor."""

    @property
    def name(self) -> str:
        """Its configured name."""
        ...

    async def replies(self, since: str) -> Replies:
        """What came after the cursor `since`; the empty text is the beginning. Raises `NotifyError`.

        A cursor that the carrier has forgotten begins anew. So an answer can come twice: it is posted
        under its item's own key, where the first one wins (S21).
        """
        ...


EXAMPLE = "22:00-07:00 Europe/Zurich"
"""A right text, shown with every complaint about a wrong one."""

_FORM = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2}) +([A-Za-z0-9_+/-]+)")

_MINUTE_US = 60 * 1_000_000

_LONGEST_MINUTES = 3 * 24 * 60
"""No quiet lasts longer: a zone may skip a day (Samoa, 2011), never two."""


class QuietHours(NamedTuple):
    """From `start` to before `end`, minutes after midnight in `zone`; over midnight when start is later."""

    start: int
    end: int
    zone: ZoneInfo

    def holds(self, at_us: int) -> bool:
        """Whether it is quiet at that moment."""
        local = datetime.fromtimestamp(at_us // 1_000_000, UTC).astimezone(self.zone)
        minute = local.hour * 60 + local.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse_quiet(spec: str) -> QuietHours:
    """The quiet hours of a text like `22:00-07:00 Europe/Zurich`. Raises `UsageError`."""
    found = _FORM.fullmatch(spec.strip())
    if found is None:
        raise _wrong(spec, "it is not two times of day and a zone")
    hours = [int(found[index]) for index in (1, 3)]
    minutes = [int(found[index]) for index in (2, 4)]
    if max(hours) > 23 or max(minutes) > 59:
        raise _wrong(spec, "a time of day goes from 00:00 to 23:59")
    start, end = (hour * 60 + minute for hour, minute in zip(hours, minutes, strict=True))
    if start == end:
        raise _wrong(spec, "it would be quiet all day, and nobody would ever be told")
    try:
        zone = ZoneInfo(found[5])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None:
        raise _wrong(spec, f"this machine knows no time zone {found[5]!r}")
    return QuietHours(start, end, zone)


def quiet_until(now_us: int, spec: str) -> int | None:
    """When the quiet that holds now is over, in microseconds; None when it is not quiet now.

    The wall clock decides, so the end is where the wall first shows it: an end inside the hour that summer
    time skips is the moment of the change. In the hour that comes twice it can be quiet twice.
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
    return UsageError(f"the quiet hours {spec!r} cannot be used: {what}; an example is: {EXAMPLE}")


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
