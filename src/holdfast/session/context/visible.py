"""Text in which nothing is hidden: characters that show nothing, or reorder others, are written as escapes.

An agent writes part of what an approver reads. Which characters are hidden follows from their Unicode properties,
so it holds for characters that a later version of Unicode adds, too.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))
"""Controls, format and bidirectional marks, surrogates, private use, unassigned, blanks, separators."""

_MARKS = frozenset(("Mn", "Mc", "Me"))

_BLANK = re.compile(r"\b(?:BLANK|FILLER|NULL NOTEHEAD|VARIATION SELECTOR|GRAPHEME JOINER|VOWEL INHERENT)\b")
"""Default-ignorable and blank characters of the other categories, by their names, which Unicode never changes."""

_DRAWN = "BLANK SYMBOL"
"""U+2422 has the word in its name and shows something."""

MARKS_MAX = 4
"""More combining marks on one character reach over the lines beside it."""

_OTHER = re.compile(r"[^\n\t -~]+")
"""Runs of anything but plain ASCII."""

_OUTSIDE_STRINGS = re.compile(r"[^ -~]")


@lru_cache(maxsize=4_096)
def is_hidden(character: str) -> bool:
    """Whether a character shows nothing by itself or reorders others. A space is the one blank that is not hidden."""
    if character == " ":
        return False
    if unicodedata.category(character) in _HIDDEN:
        return True
    name = unicodedata.name(character, "")
    return _BLANK.search(name) is not None and name != _DRAWN


def visible(text: str) -> str:
    """`text` with each hidden character, and each combining mark that has no base, as an escape such as `\\u202e`.

    Line ends and tabs stay. Two texts without backslashes never look the same because of a hidden character.
    """
    if text.isascii() and text.isprintable():
        return text
    return _OTHER.sub(_written_out, text)


def visible_line(text: str) -> str:
    """As `visible`, on one line: line ends and tabs are escapes too, and no blank is folded."""
    return visible(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def _written_out(run: re.Match[str]) -> str:
    before = run.string[run.start() - 1] if run.start() else " "
    based, marks, out = not before.isspace(), 0, []
    for character in run[0]:
        mark = unicodedata.category(character) in _MARKS
        marks = marks + 1 if mark else 0
        shows = not is_hidden(character) and (not mark or (based and marks <= MARKS_MAX))
        out.append(character if shows else _escape(character))
        based = shows
    return "".join(out)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def harmless(text: str) -> str:
    """`text` without what a terminal would obey, for words that no approval depends on; line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)


def visible_json(line: str) -> str:
    """One line of JSON with the hidden characters of its strings as `\\uXXXX`: the same value, and nothing hidden."""
    return line if line.isascii() and line.isprintable() else _OUTSIDE_STRINGS.sub(_json_escape, line)


def _json_escape(found: re.Match[str]) -> str:
    character = found[0]
    if not is_hidden(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
