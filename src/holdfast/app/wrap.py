"""Lines that fit a terminal: wrapped at words or cut, with the columns that each character takes."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Sequence


def terminal_width(descriptor: int = 2) -> int | None:
    """Columns of the terminal behind a descriptor, None when there is no terminal."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None


def drop_rest(descriptor: int) -> None:
    """Drop what Python still has to write to a standard stream that takes nothing: it tries once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def columns(text: str) -> int:
    """The columns that these characters take: none for combining marks, two for wide characters."""
    if text.isascii():
        return len(text)
    seen = [char for char in text if unicodedata.category(char) not in ("Mn", "Me", "Cf")]
    return sum(2 if unicodedata.east_asian_width(char) in ("W", "F") else 1 for char in seen)


def clipped(line: str, room: int) -> str:
    """Cut a line to `room` columns, keeping its indentation."""
    if columns(line) <= room:
        return line
    while line and columns(line) >= room:
        line = line[:-1]
    return line + "…"


_WORD = re.compile(r"`[^`\n]+`\S*|\S+")
"""A word; a command in backticks is one, so that it can be copied."""

_LABEL = re.compile(r" *(?:[-*>] |\d+\. )?(?:[^\s`|]+(?: [^\s`|]+){0,3} {2,})?(?:\| )?")
"""The beginning of a line that its continuation is indented by: a bullet, a label with its column, a bar."""


def filled(text: str, width: int, *, hard: bool = False) -> list[str]:
    """Break text at words into lines of at most `width` columns; continuations are indented below its beginning.

    A path that is wider than a line is broken behind a slash, and with `hard` any word. Behind a bar, where an agent's
    text is, each line has the bar and none is wider than the terminal.
    """
    lines = []
    for line in text.splitlines() or [""]:
        lines += [line] if columns(line) <= width else _broken(line, width, hard)
    return lines


def table(lines: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """Align the cells of lines in columns; those numbered in `right` are aligned at the right."""
    wide = [max(columns(line[at]) for line in lines) for at in range(len(lines[0]))]

    def cell(text: str, at: int) -> str:
        gap = " " * (wide[at] - columns(text))
        return gap + text if at in right else text + gap

    return ["  ".join(cell(text, at) for at, text in enumerate(line)).rstrip() for line in lines]


def _broken(line: str, width: int, hard: bool) -> list[str]:
    found = _LABEL.match(line)
    lead = re.sub(r"[^ |]", " ", found.group() if found else "")
    barred = "|" in lead
    if len(lead) > width // 2:
        lead = "| " if barred else ""
    lines, row, end = [], "", 0
    for found in _WORD.finditer(line):
        word, gap = found.group(), line[end : found.start()]
        end = found.end()
        # A command that does not fit into a line is broken at its spaces, a path at its slashes.
        for piece in [word] if columns(word) <= width - len(lead) else re.findall(r" ?[^ /]*/?", word):
            if columns(row + gap) > len(lead) and columns(row + gap + piece) > width:
                lines.append(row)
                row, gap, piece = lead, "", piece.lstrip()
            row += gap + piece
            gap = ""
            while (hard or barred) and columns(row) > width:
                cut = clipped(row, width)[:-1]
                lines.append(cut)
                row = lead + row[len(cut) :]
    return [*lines, row]
