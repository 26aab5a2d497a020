"""Answers from reply channels, fetched while anybody is asked anything, and only then."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, NotifyError
from holdfast.fleet.dispatch import Board
from holdfast.fleet.intake import Intake
from holdfast.fleet.replies import take
from holdfast.notify.base import ReplyChannel

STILL_S = 1.0
"""While nobody is asked anything, the items are looked at no more often than this."""


class Listener:
    """Polls channels every `every_s` seconds while items are open. `tell` hears what came of it, in sentences."""

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
            pause_s = STILL_S
            try:
                if await self._board.items():
                    pause_s = max([await self._look(channel) for channel in self._channels], default=self._every_s)
                else:
                    token = await self._board.changed(token)
            except HoldfastError:  # the log is in trouble: whoever runs sessions says so
                pause_s = self._every_s
            await self._clock.sleep(pause_s)

    async def _look(self, channel: ReplyChannel) -> float:
        """Take what came. Returns the seconds until the next look."""
        try:
            replies = await channel.replies(self._cursors.get(channel.name, ""))
        except NotifyError as error:
            if channel.name not in self._down:
                self._down.add(channel.name)
                self._tell(f"answers from {channel.name} cannot be fetched, and are tried again: {error}")
            return max(self._every_s, error.retry_after_s or 0.0)
        self._down.discard(channel.name)
        for reply in replies.found:
            taken = await take(reply, self._intake, self._board)
            self._cursors[channel.name] = reply.cursor
            if taken.outcome != "late":  # the server keeps old answers, and a new worker reads them once more
                self._tell(taken.detail)
        self._cursors[channel.name] = replies.cursor
        return self._every_s
