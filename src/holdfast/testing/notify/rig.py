"""What a check needs of a target or a reply channel, and of the receiver behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.facts.people import Verdict
from holdfast.notify.base import Notice, ReplyChannel, Target


class Received(NamedTuple):
    """A notice as it arrived. `notice_id` is empty when the carrier has no place for it."""

    title: str
    text: str
    notice_id: str = ""


class TargetRig(Protocol):
    """A target and its receiver, up and empty."""

    @property
    def target(self) -> Target:
        """The target under test. It gives up on a silent receiver within five seconds in all."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """What must not be told: parts of its address, its credentials."""
        ...

    def received(self) -> Sequence[Received]:
        """What the receiver took, oldest first."""
        ...

    def fail(self, times: int) -> None:
        """The receiver fails so many times, with an error that passes, then works again."""
        ...

    def stall(self) -> None:
        """The receiver takes connections and says nothing, or whatever the carrier's silence is."""
        ...

    def close(self) -> None:
        """The receiver is gone."""
        ...


class ReplyRig(Protocol):
    """A reply channel and the person behind it."""

    @property
    def channel(self) -> ReplyChannel:
        """The channel under test."""
        ...

    async def press(self, notice: Notice, verdict: Verdict) -> None:
        """The person is shown the notice and answers it."""
        ...

    def junk(self) -> None:
        """A message arrives that is no answer of ours."""
        ...

    def close(self) -> None:
        """The carrier is gone."""
        ...


TargetCheck = Callable[[TargetRig], Awaitable[None]]
ReplyCheck = Callable[[ReplyRig], Awaitable[None]]


def example(
    item_id: str = "itm_1", *, digest: str = "d1", body: str = "git push origin main", expires_us: int | None = None
) -> Notice:
    """A notice of an item."""
    return Notice(
        notice_id=f"ntc_{item_id}",
        kind="approval",
        session_id="ses_a",
        session_name="mender",
        item_id=item_id,
        title="May I push?",
        body=body,
        action_digest=digest,
        expires_us=expires_us,
        at_us=1_760_000_000_000_000,
        commands=(f"holdfast approve {item_id}", f"holdfast deny {item_id}"),
    )
