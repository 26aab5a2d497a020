"""A process that serves: it runs whatever is due, until it is stopped. Nothing is asked of the log while it is still.

Due times are wall times, and the wall clock may jump: it is looked at every few seconds, so that a machine which slept
is caught up with. A clock that went back is seen against the monotonic one; each session that it makes wait
longer is then woken once: its log says from then on by how much, and its waits end so much earlier.
"""

from __future__ import annotations

from typing import NoReturn

import anyio
import anyio.lowlevel

from holdfast.brain.alongside import first_error
from holdfast.clock import Clock
from holdfast.errors import EmergencyStop, HoldfastError
from holdfast.fleet.crew import FIRST_REST_S, LONGEST_REST_S, Crew, Handler, OnError
from holdfast.fleet.dispatch import Board

LOOK_S = 3.0
"""How often to look at the wall clock, and at the rows, even when nothing moves."""

JUMP_US = 1_000_000
"""The wall clock may go back so much without being looked into: clocks are set right by less all the time."""


class Service:
    """Runs due sessions of the whole log side by side, up to `limit` at a time.

    `on_error` hears of each session's error; that session then rests, the others go on. With an empty id it
    hears that the log itself could not be looked at.
    """

    def __init__(self, board: Board, clock: Clock, *, limit: int, on_error: OnError) -> None:
        self._board = board
        self._clock = clock
        self._limit = limit
        self._on_error = on_error
        self._failures = 0
        self._offset_us: int | None = None

    async def run(self, handler: Handler) -> NoReturn:
        """Serve until cancelled: each session at work is then let go at once, and stays runnable."""

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
        try:
            now_us = self._clock.now_us()
            late = await self._behind(now_us)
            if await self._board.stopped() is None and not crew.full:
                due = await self._board.due(now_us)
                crew.start([*due, *(each for each in late if each not in due)])
            next_us = await self._board.next_due(now_us)
        except HoldfastError as error:
            return self._trouble(error)
        self._failures = 0
        return LOOK_S if next_us is None else min(LOOK_S, max(0.0, (next_us - now_us) / 1_000_000))

    def _trouble(self, error: HoldfastError) -> float:
        """The log could not be looked at: it is again after a while, longer each time."""
        pause_s = min(LONGEST_REST_S, FIRST_REST_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 20)
        self._on_error("", error, pause_s)
        return pause_s

    async def _behind(self, now_us: int) -> list[str]:
        """Sessions that wait for a time, and whose latest event lies in the future: the clock went back."""
        offset_us = now_us - int(self._clock.monotonic_s() * 1_000_000)
        went_back = self._offset_us is None or offset_us < self._offset_us - JUMP_US
        self._offset_us = offset_us
        if not went_back:
            return []
        held = await self._board.holders()
        return [
            row.session_id
            for row in await self._board.sessions()
            if row.due_us is not None and row.updated_us > now_us + JUMP_US and row.session_id not in held
        ]

    async def _watch(self, crew: Crew) -> None:
        """Stir the crew whenever anything moves in the log. A log in trouble is looked at by the clock."""
        token = 0
        while True:
            try:
                token = await self._board.changed(token)
            except HoldfastError:
                await self._clock.sleep(LOOK_S)
            crew.stir()
