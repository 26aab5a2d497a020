"""Answers that arrive through reply channels: polled while items are open, checked, and posted once (S21)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, NoReturn

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, ItemClosed, NotifyError, UnknownItem, UsageError
from holdfast.fleet.dispatch import Board
from holdfast.log.base import Index
from holdfast.notify.base import Reply, ReplyChannel
from holdfast.service.answers import Answer
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller

IDLE_S = 1.0
"""Shortest interval between two looks at the items while none is open, in seconds."""


class Taken(msgspec.Struct, frozen=True):
    """The outcome of a reply.

    `late`: the item is answered, expired, or superseded. `refused`: there is no such item, the reply is about another
    action, or its author may not answer. `detail` is a sentence for users.
    """

    outcome: Literal["posted", "late", "refused"]
    session_id: str
    detail: str


async def take(reply: Reply, intake: Intake, index: Index, *, via: str = "ntfy") -> Taken:
    """Post an authentic reply as its author's answer. A repeated reply changes nothing."""
    try:
        item = await index.item(reply.item_id)
    except UnknownItem as error:
        return Taken("refused", reply.session_id, str(error))
    if item.item_id != reply.item_id or item.session_id != reply.session_id:
        return Taken("refused", reply.session_id, f"{reply.item_id} is not an item of session {reply.session_id}")
    if not reply.digest:
        return Taken("refused", item.session_id, f"the reply to {item.item_id} does not name the action it answers")
    given = Answer(verdict=reply.verdict, note=reply.note, digest=reply.digest)
    try:
        await intake.acting_as(Caller(reply.who, via, "reply_code")).answer(item, given)
    except ItemClosed as error:
        return Taken("late", item.session_id, str(error))
    except UsageError as error:
        return Taken("refused", item.session_id, str(error))
    done = "approved" if reply.verdict == "approve" else "denied"
    return Taken("posted", item.session_id, f"{item.item_id} was {done} by {reply.who.removeprefix('user:')}")


class Listener:
    """Polls reply channels every `every_s` seconds while items are open, and reports outcomes to `tell`."""

    def __init__(
        self,
        channels: Collection[ReplyChannel],
        board: Board,
        intake: Intake,
        clock: Clock,
        *,
        every_s: float,
        tell: Callable[[str], None],
    ) -> None:
        self._channels = channels
        self._board = board
        self._intake = intake
        self._clock = clock
        self._every_s = every_s
        self._tell = tell
        self._cursors: dict[str, str] = {}
        self._down: set[str] = set()

    async def run(self) -> NoReturn:
        """Listen until cancelled."""
        token = 0
        while True:
            pause_s = IDLE_S
            try:
                if await self._board.items():
                    pause_s = max([await self._poll(channel) for channel in self._channels], default=self._every_s)
                else:
                    token = await self._board.changed(token)
            except HoldfastError:  # a failing log, which the worker that runs sessions reports
                pause_s = self._every_s
            await self._clock.sleep(pause_s)

    async def _poll(self, channel: ReplyChannel) -> float:
        """Take the replies of a channel. Return the seconds until the next poll."""
        try:
            replies = await channel.replies(self._cursors.get(channel.name, ""))
        except NotifyError as error:
            if channel.name not in self._down:
                self._down.add(channel.name)
                self._tell(f"cannot fetch answers from {channel.name}, trying again: {error}")
            return max(self._every_s, error.retry_after_s or 0.0)
        self._down.discard(channel.name)
        for reply in replies.found:
            taken = await take(reply, self._intake, self._board)
            self._cursors[channel.name] = reply.cursor
            if taken.outcome != "late":  # the server keeps old answers, and a new worker reads them again
                self._tell(taken.detail)
        self._cursors[channel.name] = replies.cursor
        return self._every_s
