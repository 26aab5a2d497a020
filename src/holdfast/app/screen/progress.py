"""Progress of a session: the agent's words, calls, and output in lines, or each event as JSON. No line is redrawn."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock, rfc3339
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event, export_line
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.model.base import StreamPart
from holdfast.service.event_lines import counted, describe, one_line
from holdfast.session.context.text import harmless


def terminal_width(descriptor: int = 2) -> int | None:
    """Columns of the terminal behind a descriptor, None when there is no terminal."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None


OUTPUT_LINES = 3
"""Lines shown of the output of a call: the first one, and the last ones."""

INTERNAL = frozenset({"loop_look", "loop_restore", "loop_step"})
"""Tools that the harness of a loop calls by itself; their calls and results are not shown.

They are written out because a plain session does not load the code of loops."""


class PlainProgress:
    """An observer that prints the agent's words, its calls, and their output, at most `width` columns wide.

    The agent's words are wrapped, other lines are cut.
    """

    def __init__(self, clock: Clock, print_line: Callable[[str], None], width: int | None = None) -> None:
        self._clock = clock
        self._print = print_line
        self._width = width
        self._began_s = clock.monotonic_s()
        self._hidden: set[str] = set()

    def on_events(self, events: list[Event]) -> None:
        """Print the events. The end of a shift is left to the final report."""
        for line in self.told(events, self._width or WIDTH):
            self._print(line)

    def told(self, events: list[Event], width: int) -> list[str]:
        """The lines of these events: elapsed time and description, then the rest of the words or output."""
        lines = []
        for event in events:
            head, *rest = self._described(event, max(20, width - INDENT - 1))
            if head:
                elapsed = self._clock.monotonic_s() - self._began_s
                lines += [f"{elapsed:6.1f}s  {head}", *(" " * INDENT + line for line in rest)]
        return lines

    def on_delta(self, part: StreamPart) -> None:
        """Ignore deltas: plain output shows only complete messages."""

    def _described(self, event: Event, room: int) -> list[str]:
        """An event in lines of at most `room` columns; the first one is empty if it is not shown."""
        match event.fact:
            case ShiftStarted() if event.epoch == 1:
                return [""]
            case ShiftEnded():
                return [""]
            case AgentToolUse(name=name, call_id=call_id) if name in INTERNAL:
                self._hidden.add(call_id)
                return [""]
            case ToolResult(call_id=call_id, outcome="ok") if call_id in self._hidden:
                return [""]
            case AgentMessage(content=content):
                return wrapped(text_of(content), room)
            case ToolResult(outcome="ok", content=content):
                return [clipped(describe(event), room), *(f"    {line}" for line in ends(content, room - 4))]
            case _:
                return [clipped(describe(event), room)]


def clipped(line: str, room: int) -> str:
    """Cut a line to `room` columns, keeping its indentation."""
    return line if len(line) <= room else line[: room - 1] + "…"


INDENT = len("   0.0s  ")
WIDTH = 100
"""Columns of a line where no terminal says how many there are."""


def wrapped(text: str, room: int) -> list[str]:
    """Break text at word boundaries into lines of at most `room` columns; one empty line for no text."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(harmless(line), room)]
    return lines or [""]


def ends(content: str, room: int) -> list[str]:
    """The first and the last lines of an output, `OUTPUT_LINES` in all, and how many are left out."""
    lines = [line for line in content.splitlines() if line.strip()]
    if len(lines) <= OUTPUT_LINES + 1:
        return [one_line(line, room) for line in lines]
    first, *last = lines[0], *lines[1 - OUTPUT_LINES :]
    left_out = f"… {counted(len(lines) - OUTPUT_LINES, 'more line')}"
    return [one_line(line, room) for line in (first, left_out, *last)]


class Acts:
    """An observer that prints each call of a child as one line with its name, at most `width` columns wide."""

    def __init__(self, name: str, print_line: Callable[[str], None], width: int | None = None) -> None:
        self._name = name
        self._print = print_line
        self._room = (width or WIDTH) - 1

    def on_events(self, events: list[Event]) -> None:
        """Print the calls among the events."""
        for event in events:
            if isinstance(event.fact, AgentToolUse) and event.fact.name not in INTERNAL:
                self._print(clipped(f"{self._name}: {describe(event)}", self._room))

    def on_delta(self, part: StreamPart) -> None:
        """Ignore deltas: only complete calls are shown."""


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
