"""The status rows of the live view, from a session's events, state, and streamed output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.model.base import StreamPart, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from holdfast.service.access_lines import warnings
from holdfast.service.event_lines import describe, one_line
from holdfast.session.context.text import harmless
from holdfast.session.costs import Cost
from holdfast.session.fold import fold
from holdfast.session.money import usd
from holdfast.session.state import State

WORD_ROWS = 2
"""Number of rows for streamed text."""

STATUS_ROWS = 3
ROWS_MAX = STATUS_ROWS + 2 + WORD_ROWS
"""Maximum height of the block."""

GAUGE_CELLS = 10
NARROW = 60
"""Below this many columns the status uses shorter words."""

Measure = Callable[[str], int]
"""Returns the number of columns that a text takes."""

Span = tuple[str, str]
"""Text and its style, as named by rich; an empty style is plain."""


@dataclass(frozen=True)
class Row:
    """One row of the block. `tail` is kept whole when the spans are cut to the terminal's width."""

    spans: tuple[Span, ...]
    tail: str = ""


class Words:
    """Streamed text, broken into rows as it arrives. A full row never changes."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._full: deque[str] = deque(maxlen=WORD_ROWS)
        self._line = ""
        self._cells = 0

    def clear(self) -> None:
        """Remove all text."""
        self._full.clear()
        self._line, self._cells = "", 0

    def add(self, text: str, width: int) -> None:
        """Append text, for rows of `width` columns."""
        for char in text:
            if char == "\n":
                self._break(len(self._line))
            elif not char.isspace():
                self._put(harmless(char), width)
            elif self._line and not self._line.endswith(" "):
                self._put(" ", width)

    def rows(self) -> list[str]:
        """The latest rows; the last one grows."""
        rows = [*self._full, self._line]
        return [row for row in rows if row][-WORD_ROWS:]

    def _put(self, char: str, width: int) -> None:
        self._line += char
        self._cells += self._measure(char)
        if self._cells > width:
            space = self._line.rstrip(" ").rfind(" ")
            self._break(space if space > 0 else max(1, len(self._line) - 1))

    def _break(self, at: int) -> None:
        done, self._line = self._line[:at].rstrip(), self._line[at:].lstrip()
        self._cells = self._measure(self._line)
        if done:
            self._full.append(done)


class Panel:
    """The current state of a session for the block.

    `inbox` is the number of open items; without it the session's own items are counted.
    """

    def __init__(self, clock: Clock, measure: Measure, inbox: Callable[[], int] | None = None) -> None:
        self._clock = clock
        self._measure = measure
        self._inbox = inbox
        self._state: State | None = None
        self._words = Words(measure)
        self._thinking = False
        self._model: tuple[str, int] | None = None
        self._streamed = 0
        self._calls: dict[str, str] = {}
        self._running: dict[str, int] = {}
        self._last = ""
        self.behind = False

    def begin(self, state: State, latest: Iterable[Event], width: int) -> None:
        """Start from the log: the state, which the panel then modifies, and the latest events up to it."""
        self.behind = False
        self._state = None
        for event in latest:
            self.take(event, width)
        self._state = state

    @property
    def ticking(self) -> bool:
        """True if a running time is shown."""
        return bool(self._running or self._model)

    def take(self, event: Event, width: int) -> None:
        """Apply an event. If it does not follow the last one, this sets `behind`: call `begin` again."""
        state = self._state
        if state is not None:
            if event.seq <= state.seq:
                return
            if event.seq > state.seq + 1:
                self.behind = True
                return
            self._state = fold(state, [event])
        match event.fact:
            case ModelRequestStart(model=model):
                self._model, self._streamed = (f"asking {one_line(model)}", event.at_us), 0
            case ModelRequestEnd():
                self._model = None
            case AgentMessage(content=content):
                # Show the message now if it was not streamed; otherwise it has been shown already.
                if not self._streamed:
                    self._say(text_of(content), width, thinking=False, afresh=True)
            case ShiftStarted() | ShiftEnded():
                self._model = None
                self._running.clear()
            case AgentToolUse(call_id=call_id):
                self._calls[call_id] = describe(event)
            case ToolDispatched(call_id=call_id):
                self._running[call_id] = event.at_us
            case ToolResult(call_id=call_id) | ToolOutcomeUnknown(call_id=call_id):
                self._running.pop(call_id, None)
                self._last = self._calls.pop(call_id, call_id) + describe(event)
            case _:
                return

    def stream(self, part: StreamPart, width: int) -> None:
        """Apply a piece of a response."""
        began = self._model[1] if self._model else self._clock.now_us()
        match part:
            case TextDelta(text=text):
                self._model = ("answering", began)
                self._say(text, width, thinking=False, afresh=not self._streamed or self._thinking)
            case ThinkingDelta(text=text):
                self._model = ("thinking", began)
                self._say(text, width, thinking=True, afresh=not self._streamed or not self._thinking)
            case ToolCallStart(name=name):
                self._model, self._streamed = (f"calling {one_line(name)}", began), max(1, self._streamed)
            case ToolCallDelta(fragment=fragment):
                self._streamed += len(fragment)
            case _:
                return

    def _say(self, text: str, width: int, *, thinking: bool, afresh: bool) -> None:
        if afresh:
            self._words.clear()
        self._thinking = thinking
        self._streamed += len(text)
        self._words.add(text, width - 2)

    def rows(self, width: int) -> list[Row]:
        """The block for a terminal of that many columns; at most `ROWS_MAX` rows."""
        now_us = self._clock.now_us()
        rows = self._status(width)
        ended = self._state.ended if self._state is not None else None
        if self._running:
            call_id, since_us = list(self._running.items())[-1]
            more = f" (+{len(self._running) - 1} more)" if len(self._running) > 1 else ""
            label = self._calls.get(call_id, call_id)
            rows.append(Row(((label, "bold"),), f"{more}  {lasted(now_us - since_us)}"))
        elif ended is not None and ended.reason == "job" and ended.detail:
            rows.append(Row(((one_line(ended.detail), "bold"),)))
        elif self._last:
            rows.append(Row(((self._last, "dim"),)))
        if self._model:
            label, since_us = self._model
            rows.append(Row(((label, "cyan"),), f"  {lasted(now_us - since_us)}"))
        style = "dim italic" if self._thinking else ""
        rows += [Row((("| ", "dim"), (row, style))) for row in self._words.rows()]
        return rows

    def _status(self, width: int) -> list[Row]:
        """Name, progress, context, cost, and open items, in at most three rows."""
        rows: list[list[Span]] = [[]]
        cells = 0
        for piece in self._pieces(width):
            wide = sum(self._measure(text) for text, _ in piece)
            if rows[-1] and cells + 2 + wide >= width and len(rows) < STATUS_ROWS:
                rows.append([])
                cells = 0
            if rows[-1]:
                rows[-1].append(("  ", ""))
                cells += 2
            rows[-1] += piece
            cells += wide
        return [Row(tuple(row)) for row in rows if row]

    def _pieces(self, width: int) -> list[list[Span]]:
        state = self._state
        if state is None:
            return [[("reading the log", "dim")]]
        limits = state.limits
        turn = state.responses + (state.request is not None)
        name = state.created.agent.name if state.created else "agent"
        cap = f" of {usd(limits.budget_pico)}" if limits.budget_pico is not None else ""
        pieces: list[list[Span]] = [[(one_line(name, 24), "bold green")]]
        if (met := state.tenant.kind.met(state)) is not None:
            pieces.append([(f"{met[0]} of {met[1]} met", "")])
        else:
            turns = f"turn {turn}/{limits.max_turns}" if width < NARROW else f"turn {turn} of {limits.max_turns}"
            pieces += [[(turns, "")], _gauge(state, width)]
        pieces.append([(f"{Cost(state.cost_pico, state.unpriced).short}{cap}", "")])
        pieces += [[(word, "yellow" if word.islower() else "bold red")] for word in warnings(state)]
        outside = state.outside
        if outside.refused_count or outside.held_count:
            pieces.append([(f"outside {outside.refused_count} refused, {outside.held_count} held", "")])
        open_asks = sum(ask.verdict is None for ask in state.asks.values())
        waiting = self._inbox() if self._inbox else open_asks
        if waiting:
            pieces.append([(f"{waiting} {'waits' if waiting == 1 else 'wait'} for you", "bold yellow")])
        return pieces


def _gauge(state: State, width: int) -> list[Span]:
    """A gauge of the context, relative to the size at which it is compacted."""
    limits = state.limits
    line = limits.context_tokens
    if limits.context.strategy != "off":
        line = min(line, limits.context.line_tokens)
    used = state.window_tokens + sum(item.tokens for item in state.pending)
    full = min(GAUGE_CELLS, round(GAUGE_CELLS * used / max(1, line)))
    style = "green" if used < 0.6 * line else "yellow" if used < 0.85 * line else "red"
    label = "ctx" if width < NARROW else "context"
    return [
        (f"{label} [", ""),
        ("#" * full, style),
        (f"{'.' * (GAUGE_CELLS - full)}] {thousands(used)}/{thousands(line)}", ""),
    ]


def thousands(tokens: int) -> str:
    """Format a number of tokens: `950`, `3.2k`, `38k`."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 10_000 else f"{tokens // 1_000}k"


def lasted(us: int) -> str:
    """Format a running time: `12 s`, `3 min 05 s`, `2 h 03 min`."""
    seconds = max(0, us) // 1_000_000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3_600} h {seconds % 3_600 // 60:02d} min"
