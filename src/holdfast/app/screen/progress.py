"""Progress of a session: a line for each event, or each event as JSON. No line is redrawn."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from holdfast.app.screen.events import describe
from holdfast.clock import Clock, rfc3339
from holdfast.facts.base import Usage
from holdfast.facts.codec import Event, export_line
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.model.base import StreamPart
from holdfast.session.costs import Cost, own_cost
from holdfast.session.rows import SessionRow


def terminal_width(descriptor: int = 2) -> int | None:
    """Columns of the terminal behind a descriptor, None when there is no terminal."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None


class PlainProgress:
    """An observer that prints a line for each event that has one, no wider than the terminal.

    With `row`, counts continue from the session's current values.
    """

    def __init__(
        self,
        clock: Clock,
        print_line: Callable[[str], None],
        row: SessionRow | None = None,
        width: int | None = None,
    ) -> None:
        self._clock = clock
        self._print = print_line
        self._width = width
        self._began_s = clock.monotonic_s()
        self._tokens = row.input_tokens + row.output_tokens if row else 0
        self._cost = own_cost(row) if row else Cost()
        self._responses = row.turns if row else 0
        self._turn = self._responses
        self._is_turn = True

    def on_events(self, events: list[Event]) -> None:
        """Print the events. The end of a shift is left to the final report."""
        for told in self.told(events):
            line = "  ".join(told)
            if self._width is not None and len(line) > self._width:
                line = line[: max(60, self._width) - 1] + "…"
            self._print(line)

    def told(self, events: list[Event]) -> list[tuple[str, str, str]]:
        """The events that have a line: elapsed time, usage so far, description."""
        told = []
        for event in events:
            self._count(event)
            line = "" if isinstance(event.fact, ShiftEnded) else describe(event)
            if line:
                elapsed = self._clock.monotonic_s() - self._began_s
                gauge = f"turn {self._turn:<3d} {self._tokens / 1000:6.1f}k tok  {self._cost.short:>8s}"
                told.append((f"{elapsed:6.1f}s", gauge, line))
        return told

    def on_delta(self, part: StreamPart) -> None:
        """Ignore deltas: plain output shows only complete messages."""

    def _count(self, event: Event) -> None:
        match event.fact:
            case ModelRequestStart(purpose=purpose):
                self._is_turn = purpose == "turn"
                self._turn = self._responses + self._is_turn
            case ModelRequestEnd(usage=usage, cost_pico=cost, outcome=outcome):
                self._responses += outcome == "ok" and self._is_turn
                used = usage or Usage()
                self._tokens += used.input_tokens + used.cache_read_tokens + used.output_tokens
                self._cost += Cost(cost or 0, cost is None)
            case _:
                return


class JsonProgress:
    """An observer that emits each event as a JSON object."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit

    def on_events(self, events: list[Event]) -> None:
        """Emit the events."""
        for event in events:
            self._emit(public(event))

    def on_delta(self, part: StreamPart) -> None:
        """Ignore deltas: they are not events."""


def public(event: Event) -> dict[str, Any]:
    """An event in the format of `--json`: flat, with `at` as RFC 3339."""
    return {**export_line(event), "at": rfc3339(event.at_us)}
