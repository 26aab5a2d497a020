"""The live view: how a session stands, redrawn at the foot of the terminal while its lines scroll by above."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from holdfast.app.screen.painter import Painter
from holdfast.app.screen.panel import Panel
from holdfast.app.screen.progress import PlainProgress
from holdfast.brain.shift import alongside, first_error
from holdfast.clock import Clock
from holdfast.facts.codec import Event
from holdfast.model.base import StreamPart
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

FRAME_S = 0.25
"""The shortest time between two frames."""

TICK_S = 1.0
"""How often a time that goes on is drawn anew."""

LINES_MAX = 1_000
"""Lines that wait for a terminal that takes none; older ones are dropped, the log has them."""

NARROW = 80
"""Below this many columns the lines above have their time alone in front; the rest is in the block."""

Look = Callable[[], Awaitable[tuple[State, list[Event]]]]
"""Reads the log: the state of the session and its latest events."""

T = TypeVar("T")


def can_draw(terminal: str) -> bool:
    """Whether standard error is a terminal that can be drawn on; `terminal` is what `TERM` says."""
    try:
        return terminal not in ("", "dumb", "unknown") and os.isatty(sys.stderr.fileno())
    except (OSError, ValueError):
        return False


class LiveProgress:
    """An observer that draws. What it is told only waits in a queue: `keep_drawing` does the work."""

    def __init__(
        self, clock: Clock, painter: Painter, row: SessionRow | None = None, inbox: Callable[[], int] | None = None
    ) -> None:
        self._clock = clock
        self._painter = painter
        self._panel = Panel(clock, painter.measure, inbox)
        self._plain = PlainProgress(clock, self._note, row)
        self._news: deque[Event | StreamPart] = deque()
        self._lines: deque[tuple[str, bool]] = deque(maxlen=LINES_MAX)
        self._changed = anyio.Event()
        self._given_up = False

    def on_events(self, events: list[Event]) -> None:
        """Draw them soon."""
        self._news.extend(events)
        self._changed.set()
        if self._given_up:
            self._take()
            self._draw()

    def on_delta(self, part: StreamPart) -> None:
        """Draw it soon."""
        self._news.append(part)
        self._changed.set()

    def above(self, text: str) -> None:
        """Let a line of another origin scroll by; it is never cut."""
        self._lines.append((text, False))
        self._changed.set()
        if self._given_up:
            self._draw()

    def _note(self, line: str) -> None:
        self._lines.append((line, True))

    async def keep_drawing(self, look: Look) -> None:
        """Draw until cancelled. A stop by Ctrl-Z takes the block away first."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._frames, look)
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
            os.kill(os.getpid(), signal.SIGTSTP)  # with its usual effect: here it stops until it is continued
            self._changed.set()

    def _take(self) -> None:
        width = self._painter.size()[0]
        while self._news:
            news = self._news.popleft()
            if isinstance(news, Event):
                if not self._given_up:
                    self._panel.take(news, width)
                for time, gauge, line in self._plain.told([news]):
                    self._note(f"{time}  {gauge}  {line}" if width >= NARROW else f"{time}  {line}")
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
        """Go on with lines alone: what is shown never stops what is done."""
        self._painter.clear()
        self._given_up = True
        self.above(f"the live view stopped ({type(error).__name__}: {error}); the session goes on, with plain lines")

    def close(self) -> None:
        """Let the last lines scroll by and take the block away."""
        try:
            self._take()
        except Exception as error:  # the last news must not hide how the work ended
            self.give_up(error)
        self._painter.clear()
        self._given_up = True
        self._take()
        self._draw()


async def drawn(observer: LiveProgress, look: Look, work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, with the view drawn beside it and taken away whatever happens."""

    async def draw() -> None:
        try:
            await observer.keep_drawing(look)
        except Exception as error:
            observer.give_up(first_error(error) if isinstance(error, ExceptionGroup) else error)

    try:
        return await alongside(work, draw)
    finally:
        observer.close()
