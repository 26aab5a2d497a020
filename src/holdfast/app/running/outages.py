"""Waiting in the foreground for sessions that a failure of their provider parked, and saying so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.detached import begin
from holdfast.app.exits import name_of
from holdfast.app.home import is_attended
from holdfast.app.settings.config import database_path
from holdfast.clock import Clock, SystemClock, local_time
from holdfast.errors import HoldfastError
from holdfast.log.base import Which
from holdfast.service.event_lines import one_line
from holdfast.session.rows import SessionRow

LOOK_S = 2.0
"""Interval at which a command that waits looks for other sessions of the home that wait for their provider."""


class Outages:
    """Decides whether a command waits for parked sessions, at most `wait_s` for one outage.

    An outage of a session begins when it parks, and ends with its next response.
    """

    def __init__(self, tell: Callable[[str], None], clock: Clock, wait_s: float) -> None:
        self._tell = tell
        self._clock = clock
        self._wait_us = int(wait_s * 1_000_000)
        self._began: dict[str, tuple[int, int]] = {}
        self._told: dict[str, int] = {}
        self.lasts = False
        """True while the command waits."""

    def waits(self, parked: Sequence[SessionRow]) -> bool:
        """Return True if the command waits for one of these sessions, which are parked by their provider."""
        found = False
        for row in parked:
            turns, began_us = self._began.get(row.session_id, (-1, 0))
            if turns != row.turns:
                began_us = row.updated_us
                self._began[row.session_id] = row.turns, began_us
            until_us = began_us + self._wait_us
            if row.due_us is None or row.due_us > until_us:
                continue
            found = True
            if self._told.get(row.session_id) != row.head:
                self._told[row.session_id] = row.head
                now_us = self._clock.now_us()
                again, until = (time_or_day(at_us, now_us) for at_us in (row.due_us, until_us))
                self._tell(
                    f"{name_of(row)} waits for its provider until {again}, through this outage until {until}: "
                    f"{one_line(row.detail, 200)} (Ctrl-C ends the wait and loses nothing)"
                )
        self.lasts = found
        return found


def time_or_day(at_us: int, now_us: int) -> str:
    """Return a local time of the day; with the date on another day."""
    same_day = local_time(at_us, "%F") == local_time(now_us, "%F")
    return local_time(at_us, "%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S %Z")


async def continue_others(call: Call, runtime: Runtime, session_id: str, outages: Outages) -> NoReturn:
    """Until cancelled, and while the command waits, continue what a provider parked elsewhere in this home.

    A due session that neither a worker nor another command looks after continues in the background, with its whole
    tree, one tree at a look. One that cannot begin is not tried again.
    """
    clock, database = SystemClock(), database_path(call.settings)
    tried = {(await runtime.store.find(session_id)).root}
    while True:
        await clock.sleep(LOOK_S)
        if not outages.lasts or await runtime.is_served():
            continue
        with suppress(HoldfastError):
            due = frozenset(await runtime.store.due(clock.now_us(), runtime.up()))
            rows = await runtime.store.sessions(Which(reason="provider", ids=due)) if due else []
            for root in dict.fromkeys(row.root for row in rows if row.root not in tried):
                if not await is_attended(runtime.home, runtime.store, root, database):
                    tried.add(root)
                    row = await runtime.store.find(root)
                    await begin(call, runtime, row)
                    call.note(f"{name_of(row)} waits for its provider too, and goes on in the background")
                    break
    raise AssertionError("it ends only by cancelling")
