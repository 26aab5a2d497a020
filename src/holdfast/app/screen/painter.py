"""A few rows at the end of a terminal, redrawn in place, with lines that scroll by above them.

Between two frames the cursor rests on the first cell of the block: a terminal that is resized carries it
along with that cell, and a process that is killed leaves nothing hidden. There is no alternate screen,
the cursor is never hidden, and a frame is one write in which nothing is erased before it is drawn. Only
what changed is written.
"""

from __future__ import annotations

import os
import select
import unicodedata
from collections.abc import Callable, Sequence
from typing import TextIO

from holdfast.app.screen.panel import Row
from holdfast.session.context.text import harmless

_WRAP_ON = "\x1b[?7h"
_WRAP_OFF = "\x1b[?7l"
_TO_LINE_END = "\x1b[K"
_TO_SCREEN_END = "\x1b[J"

Cell = tuple[str, str]
"""A character and its style."""


class Painter:
    """Draws on the terminal behind `stream`. `color` says whether colors are welcome; bold and dim stay.

    Where nothing can be written any more it is silent: what is shown is in the log as well.
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
        """Columns and rows of the terminal now."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def ready(self) -> bool:
        """Whether the terminal takes more now; a slow line or a stopped screen does not."""
        try:
            return not self._gone and bool(select.select([], [self._stream], [], 0)[1])
        except (OSError, ValueError):
            return False

    def in_front(self) -> bool:
        """Whether this process has the terminal; in the background the shell's line is not ours to draw on."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:
            return True

    def paint(self, above: Sequence[str], rows: Sequence[Row], *, cut: bool = True) -> None:
        """Let the lines `above` scroll by and leave `rows` below them. Uncut lines wrap."""
        size = self.size()
        width, height = size
        if not (above or rows or self._rows):
            return
        cells = [self._fit(row, width - 1) for row in rows[: max(1, height - 1)]]
        same = not above and len(cells) == len(self._rows) and size == self._size
        if same:
            text = self._changes(cells)
        else:
            text = "\r" + "".join(self._line(line, width if cut else None) for line in above) + self._block(cells)
        self._rows, self._size = cells, size
        self._write(text)

    def clear(self) -> None:
        """Take the block away; the cursor stands where it began."""
        if self._rows:
            self._rows = []
            self._write("\r" + _TO_SCREEN_END)

    def _line(self, line: str, width: int | None) -> str:
        """A line that scrolls by: cut to the width, or left to wrap."""
        clean = self._encodable(harmless(line))
        if width is None:
            return _TO_SCREEN_END + clean.replace("\n", "\r\n") + "\r\n"
        return self._drawn(self._cut([(char, "") for char in clean], width - 1)) + _TO_LINE_END + "\r\n"

    def _block(self, rows: list[list[Cell]]) -> str:
        if not rows:
            return _TO_SCREEN_END
        lines = "\r\n".join(self._drawn(row) + _TO_LINE_END for row in rows)
        # Without wrapping, a character that is wider than we believe costs its row's end, not the whole block.
        return _WRAP_OFF + lines + _TO_SCREEN_END + _WRAP_ON + _up(len(rows) - 1)

    def _changes(self, rows: list[list[Cell]]) -> str:
        """What turns the block that stands there into `rows`; empty when nothing does."""
        out, at = "", 0
        for number, (old, new) in enumerate(zip(self._rows, rows, strict=True)):
            if old == new:
                continue
            same = _common(old, new)
            out += (f"\x1b[{number - at}B" if number > at else "") + "\r" + (f"\x1b[{same}C" if same else "")
            out += self._drawn(new[same:]) + (_TO_LINE_END if len(new) < len(old) or not _simple(old) else "")
            at = number
        return out and _WRAP_OFF + out + _WRAP_ON + _up(at)

    def _fit(self, row: Row, width: int) -> list[Cell]:
        tail = [(char, "") for char in self._encodable(harmless(row.tail))]
        room = max(0, width - sum(self.measure(char) for char, _ in tail))
        cells = [(char, style) for text, style in row.spans for char in self._encodable(harmless(text))]
        return self._cut([*self._cut(cells, room), *tail], width)

    def _cut(self, cells: list[Cell], width: int) -> list[Cell]:
        """As many as fit, with an ellipsis when some do not."""
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
        """`text` with a question mark for what this terminal's encoding lacks; line ends become spaces in rows."""
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
"""What a style is made of, as the numbers that every terminal knows (ECMA-48, SGR)."""


def _styles(color: bool) -> Callable[[str, str], str]:
    known = {**_WEIGHTS, **_COLORS} if color else _WEIGHTS

    def paint(text: str, style: str) -> str:
        codes = ";".join(str(known[word]) for word in style.split() if word in known)
        return f"\x1b[{codes}m{text}\x1b[0m" if codes else text

    return paint


def columns(text: str) -> int:
    """How many columns a terminal gives these characters: none to marks on others, two to wide ones."""
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _up(rows: int) -> str:
    return (f"\x1b[{rows}A" if rows else "") + "\r"


def _simple(cells: list[Cell]) -> bool:
    """Whether each character surely takes one column."""
    return all(char.isascii() for char, _ in cells)


def _common(old: list[Cell], new: list[Cell]) -> int:
    """How many cells at the beginning stay, counting only those whose width no terminal doubts."""
    same = 0
    for before, after in zip(old, new, strict=False):
        if before != after or not before[0].isascii():
            break
        same += 1
    return same
