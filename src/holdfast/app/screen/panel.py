"""The block of the live view: rows of workers and streamed words, and one status line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from holdfast.app.screen.activity import Act, Activity, Glance, Worker
from holdfast.app.wrap import clipped
from holdfast.clock import Clock
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, ModelRequestEnd, ModelRequestStart
from holdfast.model.base import StreamPart, TextDelta, ThinkingDelta
from holdfast.service.access_lines import warnings
from holdfast.service.event_lines import one_line
from holdfast.session.context.text import harmless
from holdfast.session.costs import Cost
from holdfast.session.fold import fold
from holdfast.session.money import usd
from holdfast.session.state import State

WORD_ROWS = 2
"""Number of rows for streamed text."""

WORKER_ROWS = 6
"""Number of rows for the sessions below."""

ACT_LEAST = 14
"""Columns of the status line that the current act keeps, unless rows above say what goes on."""

LABEL_LEAST = 10
"""Columns below which the current act is not named, only timed."""

NARROW = 80
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


class Board(Protocol):
    """Rows of its own that a kind of session shows above the status line."""

    progress: str
    """How much is done, for the status line; empty for nothing to say."""

    def take(self, event: Event) -> None:
        """Apply an event."""

    def rows(self) -> list[Row]:
        """The rows now."""


class Panel:
    """The current state of a session for the block: rows of its kind, rows of workers, words, and the status line.

    `inbox` is the number of open items; without it the session's own items are counted.
    """

    def __init__(
        self,
        clock: Clock,
        measure: Measure,
        inbox: Callable[[], int] | None = None,
        board: Board | None = None,
    ) -> None:
        self._clock = clock
        self._measure = measure
        self._inbox = inbox
        self._board = board
        self._state: State | None = None
        self._words = Words(measure)
        self._thinking = False
        self._streamed = False
        self._activity = Activity()
        self._glance: Glance | None = None
        self.behind = False

    def begin(self, state: State, latest: Iterable[Event], width: int) -> None:
        """Start from the log: the state, which the panel then modifies, and the latest events up to it."""
        self.behind = False
        self._state = None
        for event in latest:
            self.take(event, width)
        self._state = state

    def see(self, glance: Glance) -> None:
        """Show this about the sessions below it."""
        self._glance = glance

    @property
    def _workers(self) -> tuple[Worker, ...]:
        return self._glance.workers if self._glance is not None else ()

    @property
    def ticking(self) -> bool:
        """True if a running time is shown."""
        act = self._activity.now()
        return (act is not None and act.ongoing) or bool(self._workers)

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
        self._activity.take(event)
        if self._board is not None:
            self._board.take(event)
        if isinstance(event.fact, ModelRequestStart | ModelRequestEnd | AgentMessage):
            self._words.clear()  # a complete message scrolls by above
            self._streamed = False

    def stream(self, part: StreamPart, width: int) -> None:
        """Apply a piece of a response."""
        self._activity.stream(part, self._clock.now_us())
        if isinstance(part, TextDelta | ThinkingDelta):
            thinking = isinstance(part, ThinkingDelta)
            if not self._streamed or self._thinking != thinking:
                self._words.clear()
            self._thinking, self._streamed = thinking, True
            self._words.add(part.text, width - 2)

    def rows(self, width: int) -> list[Row]:
        """The block for a terminal of that many columns; the status line is its last row."""
        workers = self._workers
        rows = self._board.rows() if self._board is not None else []
        wide = max((self._measure(worker.name) for worker in workers[:WORKER_ROWS]), default=0)
        for worker in workers[:WORKER_ROWS]:
            name = worker.name + " " * (wide - self._measure(worker.name))
            rows.append(Row(((f"{name}  ", "cyan"), (worker.act.label, "")), self._since(worker.act)))
        if len(workers) > WORKER_ROWS:
            rows.append(Row(((f"and {len(workers) - WORKER_ROWS} more", "dim"),)))
        if self._state is not None:
            rows += [Row(((line, ""),)) for line in self._state.tenant.kind.queue(self._state)]
        style = "dim italic" if self._thinking else ""
        rows += [Row((("| ", "dim"), (row, style))) for row in self._words.rows()]
        return [*rows, self._status(width)]

    def _status(self, width: int) -> Row:
        """The status line: state, current act and how long, then warnings, progress, cost, and context."""
        state = self._state
        if state is None:
            return Row((("reading the log", "dim"),))
        open_asks = sum(ask.verdict is None for ask in state.asks.values())
        waiting = self._inbox() if self._inbox else open_asks
        act, ended = self._activity.now(), state.ended
        stands: Span = ("running", "bold green")
        if waiting:
            stands = (f"{waiting} {'waits' if waiting == 1 else 'wait'} for you", "bold yellow")
        elif ended is not None and not any(worker.act.ongoing for worker in self._workers):
            stands = (ended.status if ended.status in ("done", "failed", "cancelled") else "waiting", "bold")
            act = Act(one_line(ended.detail), 0, ongoing=False) if ended.detail else act
        least = ACT_LEAST if self._board is None and state.tenant.kind.met(state) is None else 0
        right = self._right(state, width - 1 - self._measure(stands[0]) - least, narrow=width < NARROW)
        left = width - 1 - self._wide([stands, *right]) + 2
        spans = [stands]
        if act is not None:
            since = self._since(act)
            label = f"  {act.label} (+{act.more} more)" if act.more else f"  {act.label}"
            room = left - self._measure(since)
            label = (clipped(label, room) if room > LABEL_LEAST else "") + (since if room >= 0 else "")
            spans.append((label, "" if act.ongoing else "dim"))
            left -= self._measure(label)
        return Row((*spans, (" " * max(0, left), ""), *(each for span in right for each in (("  ", ""), span))))

    def _since(self, act: Act) -> str:
        return f"  {lasted(self._clock.now_us() - act.since_us)}" if act.ongoing else ""

    def _wide(self, spans: Iterable[Span]) -> int:
        return sum(2 + self._measure(text) for text, _ in spans)

    def _right(self, state: State, room: int, *, narrow: bool) -> list[Span]:
        """The right of the status line: warnings always, the rest as long as there is room."""
        found: list[tuple[int, Span]] = [
            (0, (word, "yellow" if word.islower() else "bold red")) for word in warnings(state)
        ]
        outside, met = state.outside, state.tenant.kind.met(state)
        if outside.refused_count or outside.held_count:
            found.append((4, (f"outside {outside.refused_count} refused, {outside.held_count} held", "")))
        if self._board is not None and self._board.progress:
            found.append((2, (self._board.progress, "")))
        elif met is not None:
            found.append((2, (f"{met[0]} of {met[1]} {state.tenant.kind.met_word}", "")))
        own = Cost(state.cost_pico, state.unpriced)
        below = self._glance.cost if self._glance is not None else Cost()
        cap = f" of {usd(state.limits.budget_pico)}" if state.limits.budget_pico is not None else ""
        found.append((1, (f"{(own + below).short}{cap}", "")))
        if below != Cost():
            found.append((5, (f"(own {own.short})", "dim")))
        if self._board is None and met is None:
            found.append((3, _context(state, narrow=narrow)))
        while self._wide(span for _, span in found) > room and any(rank for rank, _ in found):
            found.remove(max(found, key=lambda each: each[0]))
        return [span for _, span in found]


def _context(state: State, *, narrow: bool) -> Span:
    """The context in use, in percent of the size at which it is compacted."""
    limits = state.limits
    line = limits.context_tokens
    if limits.context.strategy != "off":
        line = min(line, limits.context.line_tokens)
    used = state.window_tokens + sum(item.tokens for item in state.pending)
    style = "" if used < 0.6 * line else "yellow" if used < 0.85 * line else "red"
    return f"{'ctx' if narrow else 'context'} {100 * used // max(1, line)}%", style


def lasted(us: int) -> str:
    """Format a running time: `12 s`, `3 min 05 s`, `2 h 03 min`."""
    seconds = max(0, us) // 1_000_000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3_600} h {seconds % 3_600 // 60:02d} min"
