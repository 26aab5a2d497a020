"""The inbox on a terminal: a list to go through by keys, and answers without typing ids. No mouse, no flicker."""

from __future__ import annotations

import codecs
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import anyio

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.detached import see_to
from holdfast.app.screen.looking import SHOWN, look
from holdfast.app.screen.pages import Chosen, Pages
from holdfast.app.screen.painter import Painter
from holdfast.brain.shift import alongside
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.service.answers import Answer

TICK_S = 30.0
"""How often ages are drawn anew when nothing happens."""

_KEYS = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "escape",
    "\x04": "q",
}


def keys_of(text: str) -> list[str]:
    """The keys in what a terminal sent at once; of an escape sequence that nobody knows, nothing."""
    found: list[str] = []
    place = 0
    while place < len(text):
        long = next((code for code in sorted(_KEYS, key=len, reverse=True) if text.startswith(code, place)), "")
        if long == "\x1b" and text[place + 1 : place + 2] in ("[", "O"):
            place += 2
            while place < len(text) and not text[place].isalpha() and text[place] != "~":
                place += 1
            place += 1
        elif long:
            found.append(_KEYS[long])
            place += len(long)
        else:
            if text[place].isprintable():
                found.append(text[place])
            place += 1
    return found


@contextmanager
def _by_the_key() -> Iterator[None]:
    """The terminal hands over each key at once and shows none; as it was before on the way out."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def pick(call: Call, runtime: Runtime, stream: TextIO, *, color: bool) -> int:
    """Go through the inbox until `q`. Answers are given as by `approve` and `deny`."""
    painter = Painter(stream, color=color)
    pages = Pages(painter.measure)
    picker = _Picker(call, runtime, painter, pages)
    with _by_the_key():
        try:
            await picker.refresh()
            await alongside(picker.keys, picker.follow)
        finally:
            painter.clear()
    return 0


class _Picker:
    """What the keys, the log and the terminal share."""

    def __init__(self, call: Call, runtime: Runtime, painter: Painter, pages: Pages) -> None:
        self._call = call
        self._runtime = runtime
        self._painter = painter
        self._pages = pages
        self._seen: set[str] = set()

    async def keys(self) -> None:
        """Take keys until the end of the input, or until `q`."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        descriptor = sys.stdin.fileno()
        while True:
            await anyio.wait_readable(descriptor)
            data = os.read(descriptor, 1_024)
            if not data:
                return
            for key in keys_of(decoder.decode(data)):
                chosen = self._pages.key(key)
                if chosen == "quit":
                    return
                if chosen is not None:
                    await self._answer(chosen)
            self.draw()

    async def follow(self) -> None:
        """Show what happens in the log meanwhile."""
        token = 0
        while True:
            with anyio.move_on_after(TICK_S):
                token = await self._runtime.store.changed(token)
            await self.refresh()

    async def refresh(self) -> None:
        """Look at the inbox again. What is listed has been seen."""
        entries = await look(self._runtime, limit=SHOWN)
        self._pages.load(entries, SystemClock().now_us())
        self.draw()
        for entry in entries:
            if entry.item is not None and entry.item.item.item_id not in self._seen:
                self._seen.add(entry.item.item.item_id)
                await self._runtime.intake.seen(entry.item.item)

    def draw(self) -> None:
        """One frame, that leaves the terminal's last row alone."""
        width, height = self._painter.size()
        self._painter.paint([], self._pages.rows(width, max(4, height - 1)))

    async def _answer(self, chosen: Chosen) -> None:
        item = chosen.shown.item
        digest = chosen.shown.request.action_digest
        given = Answer(verdict=chosen.verdict, note=chosen.note, digest=digest)
        self._pages.message = "…"
        self.draw()
        try:
            await self._runtime.intake.answer(item, given)
            done = "approved" if chosen.verdict == "approve" else "denied"
            told = await see_to(self._call, self._runtime, item.session_id)
            self._pages.message = f"{done} {item.item_id}; {told}"
        except HoldfastError as error:
            self._pages.message = str(error)
        await self.refresh()
