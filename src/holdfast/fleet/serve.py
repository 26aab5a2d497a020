"""The loop of a worker process: it runs due sessions of a home until it is stopped.

Due times are wall times, and the wall clock may jump: the rows are evaluated again every few seconds, by the wall clock
and by the uptime (`holdfast.session.rows.due_at`). The process keeps no state about waits.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NoReturn

import anyio
import anyio.lowlevel

from holdfast.brain.doors import uptime
from holdfast.brain.shift import first_error
from holdfast.clock import Clock
from holdfast.errors import EmergencyStop, HoldfastError, LogFailed, TooMany
from holdfast.fleet.dispatch import FIRST_REST_S, STORAGE_REST_S, Board, Crew, Handler, OnError
from holdfast.session.rows import Uptime

LOOK_S = 3.0
"""Interval between looks at the wall clock and the rows while the log does not change."""

SHARED_LOOK_S = 1.0
"""The same where workers of other machines may die: nothing else says so."""

HELP_S = 1.0
"""Time for which the due sessions of other workers' shares are left to them."""

LIST_S = 1.0
"""Time for which a list of due sessions is used before the rows are read again; reading a long list is slow."""


Workers = Callable[[], Awaitable[tuple[Sequence[str], Sequence[str]]]]
"""Lists the living workers of this home, and those of all homes that share the log."""


class Share:
    """This worker's share of the due sessions, so that workers of one log do not all start the same session.

    `workers` is called at most every `LIST_S` while sessions are due, else every `LOOK_S`. Sessions that `free` names
    can begin in any home: they are divided among all workers, and the others among those of this home.
    """

    def __init__(
        self, worker_id: str, workers: Workers, clock: Clock, free: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._worker_id = worker_id
        self._workers = workers
        self._clock = clock
        self._free = free
        self._here, self._all = (0, 1), (0, 1)
        self._listed_s = float("-inf")
        self._others: dict[str, float] = {}

    def has(self, session_id: str, *, free: bool) -> bool:
        """Return True for a session of this worker's share, as of the latest list."""
        number, of = self._all if free else self._here
        return zlib.crc32(session_id.encode()) % of == number

    @property
    def waits(self) -> bool:
        """True while sessions of other workers' shares are left to them."""
        return any(self._clock.monotonic_s() < since_s + HELP_S for since_s in self._others.values())

    async def split(self, due: list[str]) -> tuple[list[str], list[str]]:
        """Return the sessions of this worker's share in the order they came due, and the others' in reverse order.

        A worker without work of its own helps the others from the end of their lists, with what they left for a while.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._listed_s + (LIST_S if due else LOOK_S):
            lists = [sorted({*workers, self._worker_id}) for workers in await self._workers()]
            self._here, self._all = [(names.index(self._worker_id), len(names)) for names in lists]
            self._listed_s = now_s
        mine, others, free = list[str](), list[str](), self._free()
        for session_id in due:
            (mine if self.has(session_id, free=session_id in free) else others).append(session_id)
        self._others = {session_id: self._others.get(session_id, now_s) for session_id in others}
        return mine, [each for each in reversed(others) if self._others[each] <= now_s - HELP_S]


async def _alone() -> tuple[Sequence[str], Sequence[str]]:
    return (), ()


class Service:
    """Runs due sessions of the whole log side by side, up to `limit` at a time.

    `on_error` receives each session's error; that session is tried again later, and the others continue. An empty id
    means that the log itself could not be read. `share` divides the work among several workers. `rung` returns parked
    sessions whose sources changed; call `stir` when there is a new one. `look_s` is the longest time between two looks.
    """

    def __init__(
        self,
        board: Board,
        clock: Clock,
        *,
        boot_id: str,
        limit: int,
        on_error: OnError,
        share: Share | None = None,
        rung: Callable[[], Collection[str]] = tuple,
        look_s: float | None = None,
    ) -> None:
        self._board = board
        self._clock = clock
        self._boot_id = boot_id
        self._limit = limit
        self._on_error = on_error
        self._share = share or Share("", _alone, clock)
        self._rung = rung
        self._look_s = look_s or LOOK_S
        self._crew: Crew | None = None
        self._rings: list[str] = []
        self._bell = anyio.Event()
        self._failures = 0
        self._mine: list[str] = []
        self._until_s = 0.0

    def stir(self) -> None:
        """Look again now."""
        if self._crew is not None:
            self._crew.stir()

    def ring(self, session_id: str, *, free: bool) -> None:
        """Begin a due session of this worker's share before the rows are read; call it in the event loop.

        A `free` one can begin in any home.
        """
        if self._share.has(session_id, free=free):
            self._rings.append(session_id)
            self._bell.set()

    async def run(self, handler: Handler) -> NoReturn:
        """Serve until cancelled. Running sessions are then released at once and stay runnable.

        Raises `LogFailed` when the disk under the log stays broken.
        """

        async def handle(session_id: str) -> None:
            try:
                await handler(session_id)
            except EmergencyStop:  # issued in the meantime; nothing starts while it is in force
                await anyio.lowlevel.checkpoint()

        def failed(session_id: str, error: HoldfastError, again_s: float | None) -> None:
            if not isinstance(error, TooMany):  # another worker was faster
                self._on_error(session_id, error, again_s)

        try:
            async with anyio.create_task_group() as group:
                crew = self._crew = Crew(group, self._clock, handle, limit=self._limit, on_error=failed)
                group.start_soon(self._watch, crew)
                group.start_soon(self._answer, crew)
                while True:
                    crew.listen()
                    await crew.stirred(await self._look(crew))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        raise AssertionError("a service ends by being cancelled")

    async def _look(self, crew: Crew) -> float:
        """Start due sessions. Return the seconds until the next look if nothing changes before then."""
        if crew.full:
            return self._look_s  # the end of a session wakes this loop
        now_us, up = self._clock.now_us(), uptime(self._clock, self._boot_id)
        try:
            if await self._board.stopped() is None:
                await self._start(crew, now_us, up)
            next_us = await self._board.next_due(now_us, up)
        except LogFailed:
            raise
        except HoldfastError as error:
            pause_s = min(STORAGE_REST_S, FIRST_REST_S * 2.0**self._failures)
            self._failures = min(self._failures + 1, 20)
            self._on_error("", error, pause_s)
            return pause_s
        self._failures = 0
        longest_s = HELP_S if self._share.waits else self._look_s
        return longest_s if next_us is None else min(longest_s, max(0.0, (next_us - now_us) / 1_000_000))

    async def _start(self, crew: Crew, now_us: int, up: Uptime) -> None:
        """Start the next sessions of this worker's share; read the due ones again when the latest list is used up."""
        crew.start(self._rung())
        now_s = self._clock.monotonic_s()
        if self._mine and now_s < self._until_s:
            crew.start(self._mine)
        else:
            self._mine, others = await self._share.split(await self._board.due(now_us, up))
            self._until_s = now_s + LIST_S
            crew.start([*self._mine, *others])
        self._mine = [each for each in self._mine if each not in crew.running] if crew.full else []

    async def _answer(self, crew: Crew) -> None:
        """Begin the sessions that the bell rings for."""
        while True:
            await self._bell.wait()
            rings, self._rings, self._bell = self._rings, [], anyio.Event()
            crew.start(rings)

    async def _watch(self, crew: Crew) -> None:
        """Stir the crew whenever the log changes, and periodically while it cannot be read."""
        token = 0
        while True:
            try:
                token = await self._board.changed(token)
            except LogFailed:
                raise
            except HoldfastError:
                await self._clock.sleep(LOOK_S)
            crew.stir()
