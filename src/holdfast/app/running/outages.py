"""Waiting in the foreground for sessions that a failure of their provider parked, and saying so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.app.exits import name_of
from holdfast.clock import Clock, local_time
from holdfast.service.event_lines import one_line
from holdfast.session.rows import SessionRow


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
        return found


def time_or_day(at_us: int, now_us: int) -> str:
    """Return a local time of the day; with the date on another day."""
    same_day = local_time(at_us, "%F") == local_time(now_us, "%F")
    return local_time(at_us, "%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S %Z")
