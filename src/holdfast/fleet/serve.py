"""A process that serves: it runs whatever is due, until it is stopped. It asks the log nothing while nothing moves.

Due times are wall times, and the wall clock may jump: the rows are judged anew every few seconds, by the wall clock and
by the uptime (`holdfast.session.rows.due_at`). Nothing about waits is kept in this process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NoReturn

import anyio
import anyio.lowlevel

from holdfast.brain.alongside import first_error
from holdfast.brain.doors import uptime
from holdfast.clock import Clock
from holdfast.errors import EmergencyStop, HoldfastError, LogFailed
from holdfast.fleet.dispatch import FIRST_REST_S, STORAGE_REST_S, Board, Crew, Handler, OnError
from holdfast.session.rows import Uptime

LOOK_S = 3.0
"""How often to look at the wall clock, and at the rows, even when nothing moves."""


LIST_S = 1.0
"""A list of what is due is gone through for so long before the rows are read again: with a long one that costs."""


class Share:
    """This worker's place among the workers that serve one log, so that they do not all begin with the same session.

    `workers` lists the living ones; it is asked at most every `LOOK_S`.
    """

    def __init__(self, worker_id: str, workers: Callable[[], Sequence[str]], clock: Clock) -> None:
        self._worker_id = worker_id
        self._workers = workers
        self._clock = clock
        self._place = (0, 1)
        self._until_s = float("-inf")

    def split(self, due: list[str]) -> tuple[list[str], list[str]]:
        """The sessions of this worker's share as they came due, and those of the others, the latest first.

        A worker without work of its own helps the others, and meets them at the end of their lists.
        """
        number, of = self._looked_up()
        mine, others = list[str](), list[str]()
        for session_id in due:
            (mine if zlib.crc32(session_id.encode()) % of == number else others).append(session_id)
        return mine, others[::-1]

    def _looked_up(self) -> tuple[int, int]:
        now_s = self._clock.monotonic_s()
        if now_s >= self._until_s:
            names = sorted({*self._workers(), self._worker_id})
            self._place, self._until_s = (names.index(self._worker_id), len(names)), now_s + LOOK_S
        return self._place


class Service:
    """Runs due sessions of the whole log side by side, up to `limit` at a time.

    `on_error` hears of each session's error; that session then rests, the others go on. With an empty id it
    hears that the log itself could not be looked at. `share` is the place among other workers, if there may be any.
    """

    def __init__(
        self, board: Board, clock: Clock, *, boot_id: str, limit: int, on_error: OnError, share: Share | None = None
    ) -> None:
        self._board = board
        self._clock = clock
        self._boot_id = boot_id
        self._limit = limit
        self._on_error = on_error
        self._share = share or Share("", list, clock)
        self._failures = 0
        self._mine: list[str] = []
        self._until_s = 0.0

    async def run(self, handler: Handler) -> NoReturn:
        """Serve until cancelled: each session at work is then let go at once, and stays runnable.

        Raises `LogFailed` when the disk under the log stays broken: a process without its log serves nothing.
        """

        async def handle(session_id: str) -> None:
            try:
                await handler(session_id)
            except EmergencyStop:  # it came in between; nothing is started while it holds
                await anyio.lowlevel.checkpoint()

        try:
            async with anyio.create_task_group() as group:
                crew = Crew(group, self._clock, handle, limit=self._limit, on_error=self._on_error)
                group.start_soon(self._watch, crew)
                while True:
                    crew.listen()
                    await crew.stirred(await self._look(crew))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        raise AssertionError("a service ends by being cancelled")

    async def _look(self, crew: Crew) -> float:
        """Start what is due. Returns the seconds after which to look again by the clock alone."""
        if crew.full:
            return LOOK_S  # whoever ends stirs
        now_us, up = self._clock.now_us(), uptime(self._clock, self._boot_id)
        try:
            if await self._board.stopped() is None:
                await self._start(crew, now_us, up)
            next_us = await self._board.next_due(now_us, up)
        except LogFailed:
            raise
        except HoldfastError as error:
            return self._trouble(error)
        self._failures = 0
        return LOOK_S if next_us is None else min(LOOK_S, max(0.0, (next_us - now_us) / 1_000_000))

    async def _start(self, crew: Crew, now_us: int, up: Uptime) -> None:
        """Start the next of this worker's share, or see anew what is due when none is left of the latest list."""
        now_s = self._clock.monotonic_s()
        if self._mine and now_s < self._until_s:
            crew.start(self._mine)
        else:
            self._mine, others = self._share.split(await self._board.due(now_us, up))
            self._until_s = now_s + LIST_S
            crew.start([*self._mine, *others])
        self._mine = [each for each in self._mine if each not in crew.running] if crew.full else []

    def _trouble(self, error: HoldfastError) -> float:
        """The log could not be looked at: it is again after a while, longer each time up to a few seconds."""
        pause_s = min(STORAGE_REST_S, FIRST_REST_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 20)
        self._on_error("", error, pause_s)
        return pause_s

    async def _watch(self, crew: Crew) -> None:
        """Stir the crew whenever anything moves in the log. A log in trouble is looked at by the clock."""
        token = 0
        while True:
            try:
                token = await self._board.changed(token)
            except LogFailed:
                raise
            except HoldfastError:
                await self._clock.sleep(LOOK_S)
            crew.stir()
