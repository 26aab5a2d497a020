"""The inbox on a terminal: pages controlled by keys, and answers without typing ids."""

from __future__ import annotations

import codecs
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TextIO

import anyio

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.detached import see_to
from holdfast.app.screen.inbox import counts, details, entry_lines, folded
from holdfast.app.screen.live import Painter
from holdfast.app.screen.panel import Row
from holdfast.brain.shift import alongside
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.facts.people import Verdict
from holdfast.service.answers import Answer
from holdfast.service.inbox import GROUPS, SHOWN, Entry, Shown, inbox

Mode = Literal["list", "read", "sure", "words"]
"""The modes: the list, reading one whole item, confirming an approval, writing a note."""

HELP: dict[Mode, str] = {
    "list": "up/down choose  enter read  a approve  d deny  q quit",
    "read": "up/down scroll  a approve  d deny  esc back  q quit",
    "sure": "y approve  n back",
    "words": "enter send  esc back",
}

LIST_ROWS = 8
"""Maximum number of list rows while an item is previewed below the list."""


@dataclass(frozen=True)
class Chosen:
    """An answer chosen by keys."""

    shown: Shown
    verdict: Verdict
    note: str = ""


class Pages:
    """The position of the user in the inbox. `measure` returns the columns of a text."""

    def __init__(self, measure: Callable[[str], int]) -> None:
        self._measure = measure
        self._entries: list[Entry] = []
        self._now_us = 0
        self._at = 0
        self._mode: Mode = "list"
        self._back: Mode = "list"
        self._verdict: Verdict = "deny"
        self._note = ""
        self._scroll = 0
        self._all_shown = False
        self._page = 1
        self.message = ""

    def load(self, entries: list[Entry], now_us: int) -> None:
        """Replace the entries. The selection stays on its item; if that item is gone, the user returns to the list."""
        before = self._item()
        self._entries, self._now_us = entries, now_us
        ids = [entry.item.item.item_id if entry.item is not None else "" for entry in entries]
        if before is not None and before.item.item_id in ids:
            self._at = ids.index(before.item.item_id)
            return
        self._at = max(0, min(self._at, len(entries) - 1))
        if before is not None and self._mode != "list":
            self._mode, self._scroll = "list", 0
            self.message = self.message or f"{before.item.item_id} is no longer open"

    def key(self, key: str) -> Chosen | Literal["quit"] | None:
        """Handle a key. Returns an answer to post, `quit`, or None."""
        shown = self._item()
        match self._mode:
            case "words":
                return self._write(key)
            case "sure":
                if key in ("y", "n", "escape", "q"):
                    self._mode = self._back
                return Chosen(shown, "approve") if key == "y" and shown is not None else None
        self.message = ""
        match key:
            case "q":
                return "quit"
            case "up" | "k":
                self._move(-1)
            case "down" | "j":
                self._move(1)
            case "page up" | "b":
                self._move(-self._page)
            case "page down" | " ":
                self._move(self._page)
            case "enter" | "right":
                self._open()
            case "escape" | "left":
                self._mode = "list"
            case "a" | "d":
                self._begin("approve" if key == "a" else "deny")
        return None

    def _move(self, by: int) -> None:
        if self._mode == "read":
            self._scroll = max(0, self._scroll + by)
        else:
            self._at = max(0, min(len(self._entries) - 1, self._at + by))

    def _open(self) -> None:
        if self._item() is None:
            self.message = "nothing is asked there; `holdfast show ID` says more about a session"
        else:
            self._mode, self._scroll = "read", 0

    def _begin(self, verdict: Verdict) -> None:
        shown = self._item()
        if shown is None:
            self.message = "nothing is asked there"
            return
        if verdict == "approve" and not self._all_shown:
            # An approver must have seen the whole action before approving it.
            self._open() if self._mode == "list" else None
            self.message = "read it to its end first"
            return
        self._back, self._verdict, self._note = self._mode, verdict, ""
        self._mode = "words" if verdict == "deny" or shown.item.kind == "question" else "sure"

    def _write(self, key: str) -> Chosen | None:
        shown = self._item()
        if key == "escape":
            self._mode = self._back
        elif key == "backspace":
            self._note = self._note[:-1]
        elif key == "enter" and shown is not None:
            self._mode = "list"
            return Chosen(shown, self._verdict, self._note.strip())
        elif len(key) == 1:
            self._note += key
        return None

    def _item(self) -> Shown | None:
        return self._entries[self._at].item if self._entries else None

    # --- output -------------------------------------------------------------------------------------

    def rows(self, width: int, height: int) -> list[Row]:
        """The page for a terminal of that size, at most `height` rows."""
        found = counts(self._entries)
        head = [Row((("  ".join(f"{group} {found[group]}" for group in GROUPS), "bold"),))]
        foot = self._foot(width)
        room = max(1, height - len(head) - len(foot))
        reads = self._mode == "read" or (self._mode in ("sure", "words") and self._back == "read")
        body = self._reading(width, room) if reads else self._listing(width, room)
        return head + body + foot

    def _foot(self, width: int) -> list[Row]:
        prompt = ""
        if self._mode == "sure":
            prompt = "approve this?"
        elif self._mode == "words":
            what = "why not, for the agent" if self._verdict == "deny" else "your answer"
            prompt = f"{what}: {self._note}_"
        text = prompt or self.message
        lines = folded(text, width, self._measure, indents=False) if text else []
        rows = [Row(((line, "bold yellow"),)) for line in lines]
        return [*rows[-3:], Row(((HELP[self._mode], "dim"),))]

    def _listing(self, width: int, room: int) -> list[Row]:
        shown = self._item()
        preview = self._detail_lines(shown, width) if shown is not None else []
        listed = []
        for place, entry in enumerate(self._entries):
            mark, style = ("> ", "bold") if place == self._at else ("  ", "")
            line = entry_lines(entry, self._now_us)[0]
            listed.append(Row(((mark, style), (f"{entry.group:<10}", "dim"), (line, style))))
        # The preview should be complete, but the list keeps some rows in any case.
        kept = min(len(listed), max(min(LIST_ROWS, room // 2), room - 1 - len(preview)))
        left = room - kept - 1
        self._all_shown = shown is not None and len(preview) <= left
        self._page = max(1, kept - 1)
        first = max(0, min(self._at - kept // 2, len(listed) - kept))
        rows = listed[first : first + kept]
        if shown is None or left < 1:
            return rows or [Row((("nothing here: no session waits, failed, ended lately or runs", ""),))]
        cut = preview[:left] if self._all_shown else [*preview[: left - 1], "… enter shows all of it"]
        return [*rows, Row((("-" * (width - 1), "dim"),)), *(Row(((line, ""),)) for line in cut)]

    def _reading(self, width: int, room: int) -> list[Row]:
        shown = self._item()
        lines = self._detail_lines(shown, width) if shown is not None else []
        self._scroll = max(0, min(self._scroll, len(lines) - room))
        end = self._scroll + room
        self._all_shown = end >= len(lines)
        self._page = max(1, room - 1)
        page = [Row(((line, ""),)) for line in lines[self._scroll : end]]
        if not self._all_shown:
            page[-1] = Row((("… more below", "dim"),))
        return page

    def _detail_lines(self, shown: Shown, width: int) -> list[str]:
        row = self._entries[self._at].row
        lines = details(shown, row, self._now_us)
        return [part for line in lines for part in folded(line, width, self._measure)]


TICK_S = 30.0
"""Interval at which ages are redrawn while nothing happens, in seconds."""

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
    """The keys in a chunk of terminal input. Unknown escape sequences are dropped."""
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
    """Put the terminal in cbreak mode: no echo, one key at a time. The old mode is restored at the end of the block."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def pick(call: Call, runtime: Runtime, stream: TextIO, *, color: bool) -> int:
    """Show the inbox until `q`. Answers are posted as by `approve` and `deny`."""
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
    """State shared by the keyboard, the log, and the terminal."""

    def __init__(self, call: Call, runtime: Runtime, painter: Painter, pages: Pages) -> None:
        self._call = call
        self._runtime = runtime
        self._painter = painter
        self._pages = pages
        self._seen: set[str] = set()

    async def keys(self) -> None:
        """Handle keys until the end of the input, or until `q`."""
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
        """Refresh the inbox whenever the log changes."""
        token = 0
        while True:
            with anyio.move_on_after(TICK_S):
                token = await self._runtime.store.changed(token)
            await self.refresh()

    async def refresh(self) -> None:
        """Reload the inbox. Record the listed items as seen."""
        now_us = SystemClock().now_us()
        entries = await inbox(self._runtime.store, now_us, limit=SHOWN)
        self._pages.load(entries, now_us)
        self.draw()
        for entry in entries:
            if entry.item is not None and entry.item.item.item_id not in self._seen:
                self._seen.add(entry.item.item.item_id)
                await self._runtime.intake.seen(entry.item.item)

    def draw(self) -> None:
        """Draw one frame; the terminal's last row stays free."""
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
