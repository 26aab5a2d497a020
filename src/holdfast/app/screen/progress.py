"""Progress of a session: the agent's words, calls, and output in lines, or each event as JSON. No line is redrawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.app.wrap import clipped, filled
from holdfast.clock import Clock, rfc3339
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event, export_line
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.model.base import StreamPart
from holdfast.service.event_lines import NOTES, counted, describe, one_line, result_line
from holdfast.session.context.text import harmless

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
        self._calls: dict[str, str] = {}
        self._latest = ""
        self._next_epoch = 0

    def prime(self, events: Iterable[Event]) -> None:
        """Note the calls among earlier events, whose results may follow."""
        for event in events:
            if isinstance(event.fact, AgentToolUse):
                self._calls[event.fact.call_id] = "" if event.fact.name in INTERNAL else describe(event)

    def on_events(self, events: list[Event]) -> None:
        """Print the events. The end of a shift is left to the final report."""
        for line in self.told(events, self._width or WIDTH):
            self._print(line)

    def told(self, events: list[Event], width: int, *, timed: bool = True) -> list[str]:
        """The lines of these events: the description, then the rest of the words or output; `timed` adds the time."""
        lines = []
        indent = INDENT if timed else 0
        for event in events:
            head, *rest = self._described(event, max(20, width - indent - 1))
            if head:
                elapsed = f"{self._clock.monotonic_s() - self._began_s:6.1f}s  " if timed else ""
                lines += [f"{elapsed}{head}", *(" " * indent + line for line in rest)]
        return lines

    def on_delta(self, part: StreamPart) -> None:
        """Ignore deltas: plain output shows only complete messages."""

    def _described(self, event: Event, room: int) -> list[str]:
        """An event in lines of at most `room` columns; the first one is empty if it is not shown."""
        match event.fact:
            case ShiftStarted() if event.epoch in (1, self._next_epoch):
                return [""]
            case ShiftEnded():
                self._next_epoch = event.epoch + 1  # the session was followed through its rest
                return [""]
            case AgentToolUse():
                self.prime([event])
                return [""]
            case ToolDispatched(call_id=call_id) if self._calls.get(call_id):
                self._latest = call_id
                return [clipped(self._calls[call_id], room)]
            case ToolResult() as result:
                return self._result(result, room)
            case AgentMessage(content=content):
                lines = filled(harmless(text_of(content)).expandtabs(4), room, hard=True)
                return [line for line in lines if line.strip()] or [""]
            case _:
                return [clipped(describe(event), room)]

    def _result(self, result: ToolResult, room: int) -> list[str]:
        """The outcome of a call below the line of the call, or behind it again if other lines came between."""
        call = self._calls.pop(result.call_id, result.call_id)
        if not call and result.outcome == "ok":
            return [""]
        output = ends(result.content, room - 4) if result.outcome in ("ok", "error") else []
        shown = output if result.outcome == "ok" or len(output) > 1 else []
        head = result_line(result, why=not shown)
        if self._latest != result.call_id:
            head = clipped(call, max(20, room - len(head))) + head
        return [clipped(head, room), *(f"    {line}" for line in shown)]


INDENT = len("   0.0s  ")
WIDTH = 100
"""Columns of a line where no terminal says how many there are."""


def ends(content: str, room: int) -> list[str]:
    """The first and the last lines of an output, `OUTPUT_LINES` in all, and how many are left out."""
    lines = [line for line in content.splitlines() if line.strip() and not line.startswith(NOTES)]
    if len(lines) <= OUTPUT_LINES + 1:
        return [one_line(line, room) for line in lines]
    first, *last = lines[0], *lines[1 - OUTPUT_LINES :]
    left_out = f"… {counted(len(lines) - OUTPUT_LINES, 'more line')}"
    return [one_line(line, room) for line in (first, left_out, *last)]


class Acts:
    """An observer that prints words and calls of a child, each in one line with its name, at most `width` columns."""

    def __init__(self, name: str, print_line: Callable[[str], None], width: int | None = None) -> None:
        self._name = name
        self._print = print_line
        self._room = (width or WIDTH) - 1

    def on_events(self, events: list[Event]) -> None:
        """Print the words and the calls among the events."""
        for event in events:
            acts = isinstance(event.fact, AgentToolUse) and event.fact.name not in INTERNAL
            if (acts or isinstance(event.fact, AgentMessage)) and describe(event):
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
