"""The live view: status rows redrawn at the foot of the terminal; other lines scroll by above them."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO, TypeVar

import anyio

from holdfast.app.screen.activity import Glance
from holdfast.app.screen.panel import Board, Panel, Row
from holdfast.app.screen.progress import PlainProgress
from holdfast.app.wrap import columns, filled
from holdfast.brain.shift import alongside, first_error
from holdfast.clock import Clock
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage
from holdfast.model.base import StreamPart
from holdfast.session.context.text import harmless
from holdfast.session.state import State

_WRAP_ON = "\x1b[?7h"
_WRAP_OFF = "\x1b[?7l"
_TO_LINE_END = "\x1b[K"
_TO_SCREEN_END = "\x1b[J"

Cell = tuple[str, str]
"""A character and its style."""


class Painter:
    """Draws on the terminal behind `stream`. `color` allows colors; bold and dim are always used.

    If the terminal cannot be written to, it does nothing: the log has the same content.
    """

    def __init__(self, stream: TextIO, *, color: bool) -> None:
        self._stream = stream
        self._paint = _styles(color)
        self._unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
        self._rows: list[list[Cell]] = []
        self._size = (0, 0)
        self._gone = False
        self.measure: Callable[[str], int] = columns

    def size(self) -> tuple[int, int]:
        """The current columns and rows of the terminal."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def ready(self) -> bool:
        """True if the terminal accepts output now: no slow line, no stopped screen."""
        try:
            return not self._gone and bool(select.select([], [self._stream], [], 0)[1])
        except (OSError, ValueError):
            return False

    def in_front(self) -> bool:
        """True if this process is in the foreground of the terminal."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:
            return True

    def paint(self, above: Sequence[str], rows: Sequence[Row], *, cut: bool = True) -> None:
        """Scroll the lines `above` by and draw `rows` below them, the last ones if there is room for some only.

        Uncut lines are wrapped.
        """
        size = self.size()
        width, height = size
        if not (above or rows or self._rows):
            return
        cells = [self._fit(row, width - 1) for row in rows[-max(1, height - 1) :]]
        same = not above and len(cells) == len(self._rows) and size == self._size
        if same:
            text = self._changes(cells)
        else:
            text = "\r" + "".join(self._line(line, width if cut else None) for line in above) + self._block(cells)
        self._rows, self._size = cells, size
        self._write(text)

    def clear(self) -> None:
        """Erase the block; the cursor returns to its first row."""
        if self._rows:
            self._rows = []
            self._write("\r" + _TO_SCREEN_END)

    def _line(self, line: str, width: int | None) -> str:
        """Format a line that scrolls by: cut to the width, or left to wrap."""
        clean = self._encodable(harmless(line))
        if width is None:
            return "".join(f"{row}{_TO_LINE_END}\r\n" for row in filled(clean.expandtabs(4), self.size()[0] - 1))
        return self._drawn(self._cut([(char, "") for char in clean], width - 1)) + _TO_LINE_END + "\r\n"

    def _block(self, rows: list[list[Cell]]) -> str:
        if not rows:
            return _TO_SCREEN_END
        lines = "\r\n".join(self._drawn(row) + _TO_LINE_END for row in rows)
        # With wrapping off, a character wider than expected cuts off its row's end and does not shift the block.
        return _WRAP_OFF + lines + _TO_SCREEN_END + _WRAP_ON + _up(len(rows) - 1)

    def _changes(self, rows: list[list[Cell]]) -> str:
        """The output that turns the drawn block into `rows`; empty if they are the same."""
        out, at = "", 0
        for number, (old, new) in enumerate(zip(self._rows, rows, strict=True)):
            if old == new:
                continue
            same = _common(old, new)
            out += (f"\x1b[{number - at}B" if number > at else "") + "\r" + (f"\x1b[{same}C" if same else "")
            # A character outside ASCII may have taken more columns on this terminal than expected.
            simple = all(char.isascii() for char, _ in old)
            out += self._drawn(new[same:]) + (_TO_LINE_END if len(new) < len(old) or not simple else "")
            at = number
        return out and _WRAP_OFF + out + _WRAP_ON + _up(at)

    def _fit(self, row: Row, width: int) -> list[Cell]:
        tail = [(char, "") for char in self._encodable(harmless(row.tail))]
        room = max(0, width - sum(self.measure(char) for char, _ in tail))
        cells = [(char, style) for text, style in row.spans for char in self._encodable(harmless(text))]
        return self._cut([*self._cut(cells, room), *tail], width)

    def _cut(self, cells: list[Cell], width: int) -> list[Cell]:
        """As many cells as fit, with an ellipsis if some do not."""
        used = 0
        room = 0
        for number, (char, _) in enumerate(cells):
            wide = self.measure(char)
            if used + wide > width:
                return [*cells[:room], (self._encodable("…"), "")] if width else []
            used += wide
            if used < width:
                room = number + 1
        return cells

    def _encodable(self, text: str) -> str:
        """`text` with `?` for characters that the encoding lacks; in rows, line ends become spaces."""
        if self._unicode or text.isascii():
            return text
        encoding = self._stream.encoding or "ascii"
        return text.encode(encoding, "replace").decode(encoding)

    def _drawn(self, cells: Sequence[Cell]) -> str:
        out, start = "", 0
        for end in range(1, len(cells) + 1):
            if end == len(cells) or cells[end][1] != cells[start][1]:
                out += self._paint("".join(char for char, _ in cells[start:end]), cells[start][1])
                start = end
        return out

    def _write(self, text: str) -> None:
        if not text or self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._gone = True


_WEIGHTS = {"bold": 1, "dim": 2, "italic": 3}
_COLORS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""The parts of a style, as numbers that every terminal supports (ECMA-48, SGR)."""


def _styles(color: bool) -> Callable[[str, str], str]:
    known = {**_WEIGHTS, **_COLORS} if color else _WEIGHTS

    def paint(text: str, style: str) -> str:
        codes = ";".join(str(known[word]) for word in style.split() if word in known)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text

    return paint


def _up(rows: int) -> str:
    return (f"\x1b[{rows}A" if rows else "") + "\r"


def _common(old: list[Cell], new: list[Cell]) -> int:
    """The number of unchanged cells at the beginning, counting only those of unambiguous width."""
    same = 0
    for before, after in zip(old, new, strict=False):
        if before != after or not before[0].isascii():
            break
        same += 1
    return same


FRAME_S = 0.25
"""Shortest interval between two frames, in seconds."""

TICK_S = 1.0
"""Interval at which a running time is redrawn, in seconds."""

LINES_MAX = 1_000
"""Maximum number of lines queued for a blocked terminal; older ones are dropped, and the log has them."""

Look = Callable[[], Awaitable[tuple[State, list[Event]]]]
"""Reads the session's state and its latest events from the log."""

Below = Callable[[], Awaitable[Glance]]
"""Looks at the sessions below the session."""

T = TypeVar("T")


def can_draw(terminal: str) -> bool:
    """True if standard error is a terminal that can be drawn on; `terminal` is the value of `TERM`."""
    try:
        return terminal not in ("", "dumb", "unknown") and os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False


class LiveProgress:
    """An observer that draws. It only queues what it receives; `keep_drawing` draws it."""

    def __init__(
        self,
        clock: Clock,
        painter: Painter,
        board: Board | None = None,
        inbox: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._painter = painter
        self._panel = Panel(clock, painter.measure, inbox, board)
        self._plain = PlainProgress(clock, self._note)
        self._news: deque[Event | StreamPart] = deque()
        self._lines: deque[tuple[str, bool]] = deque(maxlen=LINES_MAX)
        self._changed = anyio.Event()
        self._given_up = False
        self.said = ""
        """The latest words of the agent that scrolled by."""

    def prime(self, events: list[Event]) -> None:
        """Note the calls among earlier events, whose results may follow."""
        self._plain.prime(events)

    def on_events(self, events: list[Event]) -> None:
        """Queue the events for drawing."""
        self._news.extend(events)
        self._changed.set()
        if self._given_up:
            self._take()
            self._draw()

    def on_delta(self, part: StreamPart) -> None:
        """Queue the delta for drawing."""
        self._news.append(part)
        self._changed.set()

    def above(self, text: str) -> None:
        """Scroll a line from another source by; it is never cut."""
        self._lines.append((text, False))
        self._changed.set()
        if self._given_up:
            self._draw()

    def _note(self, line: str) -> None:
        self._lines.append((line, True))

    async def keep_drawing(self, look: Look, below: Below | None = None) -> None:
        """Draw until cancelled. Ctrl-Z erases the block before the process stops."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._frames, look)
            if below is not None:
                group.start_soon(self._glances, below)
            group.start_soon(self._resizes)
            if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
                group.start_soon(self._suspensions)

    async def _frames(self, look: Look) -> None:
        width = self._painter.size()[0]
        self._panel.begin(*await look(), width)
        while True:
            self._take()
            if self._panel.behind:
                self._panel.begin(*await look(), width)
            if self._painter.ready():
                self._draw()
            await self._clock.sleep(FRAME_S)
            with anyio.move_on_after(TICK_S - FRAME_S if self._panel.ticking or self._lines else None):
                await self._changed.wait()
            self._changed = anyio.Event()

    async def _glances(self, below: Below) -> None:
        while True:
            self._panel.see(await below())
            self._changed.set()
            await self._clock.sleep(TICK_S)

    async def _resizes(self) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                self._changed.set()

    async def _suspensions(self) -> None:
        while True:
            with anyio.open_signal_receiver(signal.SIGTSTP) as signals:
                async for _ in signals:
                    break
            self._painter.clear()
            os.kill(os.getpid(), signal.SIGTSTP)  # the default action: the process stops here until it is continued
            self._changed.set()

    def _take(self) -> None:
        width = self._painter.size()[0]
        while self._news:
            news = self._news.popleft()
            if isinstance(news, Event):
                if isinstance(news.fact, AgentMessage):
                    self.said = text_of(news.fact.content)
                if not self._given_up:
                    self._panel.take(news, width)
                for line in self._plain.told([news], width, timed=False):
                    self._note(line)
            elif not self._given_up:
                self._panel.stream(news, width)

    def _draw(self) -> None:
        shown = self._painter.in_front() and not self._given_up
        rows = self._panel.rows(self._painter.size()[0]) if shown else []
        while self._lines:
            cut = self._lines[0][1]
            above: list[str] = []
            while self._lines and self._lines[0][1] == cut:
                above.append(self._lines.popleft()[0])
            self._painter.paint(above, rows, cut=cut)
        self._painter.paint((), rows)

    def give_up(self, error: BaseException) -> None:
        """Continue with plain lines: a display error never stops the work."""
        self._painter.clear()
        self._given_up = True
        self.above(f"the live view stopped ({type(error).__name__}: {error}); the session goes on, with plain lines")

    def close(self) -> None:
        """Print the queued lines and erase the block."""
        try:
            self._take()
        except Exception as error:  # a display error must not hide the outcome of the work
            self.give_up(error)
        self._painter.clear()
        self._given_up = True
        self._take()
        self._draw()


async def drawn(observer: LiveProgress, look: Look, work: Callable[[], Awaitable[T]], below: Below | None = None) -> T:
    """Return the result of `work`, with the view drawn beside it and erased at the end in every case."""

    async def draw() -> None:
        try:
            await observer.keep_drawing(look, below)
        except Exception as error:
            observer.give_up(first_error(error) if isinstance(error, ExceptionGroup) else error)

    try:
        return await alongside(work, draw)
    finally:
        observer.close()
