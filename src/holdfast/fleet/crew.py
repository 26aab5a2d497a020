"""Sessions at work side by side, each in a task of its own; who failed rests before it is tried again.

What is here is in memory only: the wake rows remember, and another process tries at once (S27).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import anyio
import msgspec
from anyio.abc import TaskGroup

from holdfast.brain.alongside import alongside
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
)

Handler = Callable[[str], Awaitable[None]]
"""Wakes the session of that id."""

OnError = Callable[[str, HoldfastError, float | None], None]
"""Hears of a session's error, and in how many seconds it is tried again; None when it is not."""

FIRST_REST_S = 1.0
LONGEST_REST_S = 300.0
"""A session that failed rests, twice as long after each failure in a row, up to this."""

STORAGE_REST_S = 4.0
"""The longest rest when the storage failed, and not the session: it is tried again soon after the storage works."""

HELD_REST_S = 1.0
"""A session that another process turned out to hold is not looked at again for so long."""


class _Rest(msgspec.Struct):
    until_s: float
    failures: int = 0

    def is_stale(self, now_s: float) -> bool:
        """Whether it can be forgotten: it is over, and so is the time in which another failure would prolong it."""
        return now_s > self.until_s + (LONGEST_REST_S if self.failures else 0.0)


class Crew:
    """At most `limit` sessions at work in `group`.

    Without `on_error` an error of a session ends everything; with it that session rests, at most `tries` times in
    a row when that is given, and the others go on. A log that has failed for good ends everything.
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
        """Whether no more can be started now."""
        return len(self.running) >= self._limit

    def start(self, due: Collection[str]) -> None:
        """Begin with those that are due and neither at work, nor resting, nor left; as many as there is room for."""
        for session_id in due:
            if self.full:
                return
            if session_id not in self.running and session_id not in self._left and not self._rests_now(session_id):
                self.running.add(session_id)
                self._group.start_soon(self._work, session_id)

    def waiting(self, due: Collection[str]) -> bool:
        """Whether any of these will be tried by itself: there is no room yet, or it rests."""
        return any(session_id not in self._left for session_id in due)

    def forget(self, session_id: str) -> None:
        """Somebody wants that session looked at now: no rest."""
        self._rests.pop(session_id, None)
        self._left.discard(session_id)

    def stir(self) -> None:
        """Have whoever waits in `stirred` look again."""
        self._stirred.set()

    def listen(self) -> None:
        """Call this before looking at what `stirred` then waits for, so that nothing is missed between."""
        self._stirred = anyio.Event()

    async def stirred(self, at_most_s: float | None) -> None:
        """Return when a session's work has ended, `stir` was called, a rest is over, or so many seconds have passed."""
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
        """How long a session rests after an error, None for ever."""
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
