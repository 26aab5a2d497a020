"""Dispatch of due sessions: selects the session that a process works on, and when (S27).

The lease excludes other processes and the wake row persists the due time; everything here is in memory only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal, Protocol

import anyio
import msgspec
from anyio.abc import TaskGroup

from holdfast.brain.doors import uptime
from holdfast.brain.shift import alongside, first_error
from holdfast.clock import Clock
from holdfast.errors import (
    EmergencyStop,
    HoldfastError,
    LeaseHeld,
    LogFailed,
    LogUnavailable,
    NeedsProgram,
    SchemaTooNew,
    StorageFull,
    TooMany,
    UnknownSession,
)
from holdfast.log.base import Index, Which
from holdfast.session.rows import RowStatus, SessionRow

Handler = Callable[[str], Awaitable[None]]
"""Wakes the session with that id."""

OnError = Callable[[str, HoldfastError, float | None], None]
"""Receives a session's error and the seconds until the next try, None for no further try."""

FIRST_REST_S = 1.0
LONGEST_REST_S = 300.0
"""Delay before a failed session is tried again: doubled after each consecutive failure, up to the longest."""

STORAGE_REST_S = 4.0
"""Longest delay when the storage failed, not the session, so that it continues soon after the storage works."""

HELD_REST_S = 1.0
"""Delay before a session that another process holds, or that reached a limit, is tried again."""


class _Rest(msgspec.Struct):
    until_s: float
    failures: int = 0

    def is_stale(self, now_s: float) -> bool:
        """Return True when the delay is over, and too long ago for another failure to double it."""
        return now_s > self.until_s + (LONGEST_REST_S if self.failures else 0.0)


class Crew:
    """Runs at most `limit` sessions side by side in `group`, each in a task of its own.

    Without `on_error` an error of a session ends everything. With it the session is tried again after a delay, at most
    `tries` times in a row if given, and the others continue. A log that has failed for good ends everything.
    """

    def __init__(
        self,
        group: TaskGroup,
        clock: Clock,
        handler: Handler,
        *,
        limit: int,
        on_error: OnError | None = None,
        tries: int | None = None,
    ) -> None:
        self.running: set[str] = set()
        self._group = group
        self._clock = clock
        self._handler = handler
        self._limit = limit
        self._on_error = on_error
        self._tries = tries
        self._rests: dict[str, _Rest] = {}
        self._left: set[str] = set()
        self._stirred = anyio.Event()

    @property
    def full(self) -> bool:
        """True while no more sessions can be started."""
        return len(self.running) >= self._limit

    def start(self, due: Collection[str]) -> None:
        """Start due sessions that are not running, delayed, or given up, up to the limit."""
        for session_id in due:
            if self.full:
                return
            if session_id not in self.running and session_id not in self._left and not self._rests_now(session_id):
                self.running.add(session_id)
                self._group.start_soon(self._work, session_id)

    def waiting(self, due: Collection[str]) -> bool:
        """Return True if one of these will be tried later: the limit is reached, or it is delayed."""
        return any(session_id not in self._left for session_id in due)

    def forget(self, session_id: str) -> None:
        """Drop the delay of a session, so that it is tried now."""
        self._rests.pop(session_id, None)
        self._left.discard(session_id)

    def stir(self) -> None:
        """Wake the caller that waits in `stirred`."""
        self._stirred.set()

    def listen(self) -> None:
        """Start listening. Call it before the look that precedes `stirred`, so that no change in between is missed."""
        self._stirred = anyio.Event()

    async def stirred(self, at_most_s: float | None) -> None:
        """Wait until a session's work ends, `stir` is called, a delay is over, or `at_most_s` seconds have passed."""
        event = self._stirred
        now_s = self._clock.monotonic_s()
        self._rests = {name: rest for name, rest in self._rests.items() if not rest.is_stale(now_s)}
        rests = [rest.until_s - now_s for rest in self._rests.values() if rest.until_s > now_s]
        pause_s = min([*rests, *([at_most_s] if at_most_s is not None else [])], default=None)
        if pause_s is None:
            await event.wait()
            return
        seconds = max(0.0, pause_s)

        async def sleep() -> None:
            await self._clock.sleep(seconds)
            event.set()

        await alongside(event.wait, sleep)

    def _rests_now(self, session_id: str) -> bool:
        rest = self._rests.get(session_id)
        return rest is not None and self._clock.monotonic_s() < rest.until_s

    async def _work(self, session_id: str) -> None:
        try:
            await self._handler(session_id)
        except LeaseHeld:
            self._rest(session_id, HELD_REST_S, failures=0)
        except TooMany as error:
            self._rest(session_id, HELD_REST_S, failures=0)
            if self._on_error is not None:
                self._on_error(session_id, error, HELD_REST_S)
        except LogFailed:
            raise
        except HoldfastError as error:
            if self._on_error is None:
                raise
            self._on_error(session_id, error, self._after(session_id, error))
        else:
            self._rests.pop(session_id, None)
        finally:
            self.running.discard(session_id)
            self.stir()

    def _after(self, session_id: str, error: HoldfastError) -> float | None:
        """Return the delay after an error in seconds, None to give the session up."""
        before = self._rests.get(session_id)
        failures = (before.failures if before else 0) + 1
        given_up = self._tries is not None and failures >= self._tries
        if given_up or isinstance(error, NeedsProgram | EmergencyStop | SchemaTooNew):
            self._left.add(session_id)
            return None
        longest_s = STORAGE_REST_S if isinstance(error, LogUnavailable | StorageFull) else LONGEST_REST_S
        pause_s = min(longest_s, FIRST_REST_S * 2.0 ** (failures - 1))
        self._rest(session_id, pause_s, failures)
        return pause_s

    def _rest(self, session_id: str, pause_s: float, failures: int) -> None:
        self._rests[session_id] = _Rest(self._clock.monotonic_s() + pause_s, failures)


LOOK_S = 1.0
"""Interval between checks that the process that holds an awaited session still lives."""

TRIES = 5
"""Consecutive failures after which a descendant of the session in the foreground is given up."""


class Board(Index, Protocol):
    """The view of a dispatcher: the rows, the holders, and a signal for changes."""

    async def changed(self, after: int) -> int:
        """See `holdfast.log.base.Log`."""
        ...

    async def holders(self) -> dict[str, str]:
        """See `holdfast.log.base.Leases`."""
        ...


class InlineDispatcher:
    """Runs due sessions of one machine side by side, up to `limit` at a time, straight from the wake rows.

    With `only`, it runs just that session and all below it: its error ends the run, an error below it is reported to
    `on_error` and tried again a few times, and the run waits for sessions of the tree that other processes hold. With
    `stays` it also waits for the jobs of the tree; `waits` decides whether it waits for those of its sessions that a
    provider's failure parked.
    """

    def __init__(
        self,
        board: Board,
        clock: Clock,
        *,
        boot_id: str,
        only: str = "",
        limit: int = 1,
        on_error: OnError | None = None,
        stays: bool = False,
        waits: Callable[[Sequence[SessionRow]], bool] | None = None,
    ) -> None:
        self._board = board
        self._clock = clock
        self._boot_id = boot_id
        self._only = only
        self._limit = limit
        self._on_error = on_error
        self._stays = stays
        self._waits = waits
        self._rung: list[str] = []
        self._limited: set[str] = set()
        self._in_tree: dict[str, bool] = {"": False, only: True} if only else {}

    async def ring(self, session_id: str) -> None:
        """Look at that session first."""
        if session_id not in self._rung:
            self._rung.append(session_id)

    async def run(self, handler: Handler) -> None:
        """Call `handler` for each due session until none is due. Sessions that another process holds are left to it."""
        try:
            async with anyio.create_task_group() as group:
                on_error = self._told if self._only else None
                crew = Crew(group, self._clock, handler, limit=self._limit, on_error=on_error, tries=TRIES)
                if self._only:
                    group.start_soon(watch, self._board, crew)
                await self._until_rest(crew)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    def _told(self, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        if isinstance(error, TooMany):
            if self._on_error is not None and session_id not in self._limited:
                self._on_error(session_id, error, again_s)
            self._limited.add(session_id)
            return
        if session_id == self._only or self._on_error is None:
            raise error
        self._on_error(session_id, error, again_s)

    async def _until_rest(self, crew: Crew) -> None:
        while True:
            crew.listen()
            due = await self._due(crew)
            crew.start(due)
            if not crew.running and not (self._only and await self._goes_on(crew, due)):
                if not self._only or not await self._became_due(due):
                    return
                continue
            await crew.stirred(LOOK_S if self._only else None)

    async def _due(self, crew: Crew) -> list[str]:
        rung, self._rung = self._rung, []
        for session_id in rung:
            crew.forget(session_id)
        due = await self._board.due(self._clock.now_us(), uptime(self._clock, self._boot_id))
        mine = [session_id for session_id in due if session_id not in rung and await self._is_mine(session_id)]
        return rung + mine

    async def _became_due(self, due: list[str]) -> bool:
        """Return True if a session is due that was not due at the last look."""
        now = await self._board.due(self._clock.now_us(), uptime(self._clock, self._boot_id))
        return any([each not in due and await self._is_mine(each) for each in now])

    async def _goes_on(self, crew: Crew, due: list[str]) -> bool:
        """Return True if more work will follow: a session is delayed, at a limit, or held by another process."""
        if crew.waiting(due):
            return True
        if any([await self._is_mine(session_id) for session_id in await self._board.holders()]):
            return True
        if crew.waiting([row.session_id for row in await self._mine(status="runnable")]):
            return True
        if self._stays and await self._mine(reason="job"):
            return True
        return self._waits is not None and self._waits(await self._mine(reason="provider"))

    async def _mine(self, *, status: RowStatus | Literal[""] = "", reason: str = "") -> list[SessionRow]:
        """Return the sessions in scope with that status, or parked for that reason."""
        root = (await self._board.find(self._only)).root
        rows = await self._board.sessions(Which(root=root, status=status, reason=reason))
        return [row for row in rows if await self._is_mine(row.session_id)]

    async def _is_mine(self, session_id: str) -> bool:
        """Return True for a session in scope. Parents never change, so each session is looked up once."""
        if not self._only:
            return True
        chain = []
        while session_id not in self._in_tree:
            chain.append(session_id)
            try:
                session_id = (await self._board.find(session_id)).parent
            except UnknownSession:
                session_id = ""
        for name in chain:
            self._in_tree[name] = self._in_tree[session_id]
        return self._in_tree[session_id]


async def watch(board: Board, crew: Crew) -> None:
    """Stir the crew whenever the log changes. Never returns."""
    token = 0
    while True:
        token = await board.changed(token)
        crew.stir()
