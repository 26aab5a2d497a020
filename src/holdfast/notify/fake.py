"""Targets and a reply channel in memory, for tests and the simulator."""

from __future__ import annotations

from collections import Counter

from anyio.lowlevel import checkpoint

from holdfast.errors import NotifyError
from holdfast.facts.people import Verdict
from holdfast.notify.base import Notice, Replies, Reply


class FakeTarget:
    """A target that stores notices. The next `failing` tries fail, or all tries while `down`; `tries` counts them."""

    def __init__(self, name: str = "fake", failing: int = 0) -> None:
        self.name = name
        self.failing = failing
        self.down = False
        self.sent: list[Notice] = []
        self.tries: Counter[str] = Counter()

    async def send(self, notice: Notice) -> None:
        """Store the notice, or fail. Raises `NotifyError`."""
        await checkpoint()
        self.tries[notice.notice_id] += 1
        if self.down or self.failing > 0:
            self.failing = max(0, self.failing - 1)
            raise NotifyError(f"the notification target {self.name!r} is down (fake)", retryable=True)
        self.sent.append(notice)


class FakeReplies:
    """A reply channel that a test fills. A cursor is a number of messages, as text."""

    def __init__(self, name: str = "fake", who: str = "user:fake") -> None:
        self.name = name
        self.who = who
        self._messages: list[Reply | None] = []

    def press(self, notice: Notice, verdict: Verdict, note: str = "") -> None:
        """Reply to a notice, as one of its buttons would."""
        number = str(len(self._messages) + 1)
        self._messages.append(
            Reply(
                session_id=notice.session_id,
                item_id=notice.item_id,
                verdict=verdict,
                digest=notice.action_digest,
                who=self.who,
                id=f"reply-{number}",
                cursor=number,
                note=note,
            )
        )

    def junk(self) -> None:
        """Add a message that is not a reply."""
        self._messages.append(None)

    async def replies(self, since: str) -> Replies:
        """See `ReplyChannel.replies`; an unknown cursor starts at the beginning."""
        await checkpoint()
        start = int(since) if since.isdecimal() and int(since) <= len(self._messages) else 0
        new = self._messages[start:]
        found = {(reply.item_id, reply.verdict, reply.digest): reply for reply in reversed(new) if reply is not None}
        ordered = sorted(found.values(), key=lambda reply: int(reply.cursor))
        return Replies(tuple(ordered), str(len(self._messages)), len(new) - len(ordered))
