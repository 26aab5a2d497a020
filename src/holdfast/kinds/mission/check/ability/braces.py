"""Masking and bracket matching for source code in languages with braces."""

from __future__ import annotations

import re

_QUIET = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`|"""
    r"""(?<=[(,=:\[!&|?{};\n])[ \t]*/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/""",
    re.DOTALL,
)
_OPEN, _CLOSE = "([{", ")]}"


def masked(text: str) -> str:
    """Blank out comments and the contents of strings and regular expressions; the length stays the same."""

    def blank(found: re.Match[str]) -> str:
        edge = found[0][0] if found[0][0] in "\"'`" else ""
        return edge + re.sub(r"[^\n]", " ", found[0][len(edge) : len(found[0]) - len(edge)]) + edge

    return _QUIET.sub(blank, text)


def end_of(mask: str, at: int) -> int:
    """Return the position of the bracket that closes the one at `at`, or the end of the text."""
    depth = 0
    for place in range(at, len(mask)):
        depth += (mask[place] in _OPEN) - (mask[place] in _CLOSE)
        if depth == 0:
            return place
    return len(mask)


def on_top(mask: str, start: int, end: int) -> str:
    """Blank out everything in nested braces of a part of a mask; the length stays the same."""
    found, depth = [], 0
    for char in mask[start:end]:
        depth -= char == "}"
        found.append(char if depth == 0 or char == "\n" else " ")
        depth += char == "{"
    return "".join(found)


def arguments(mask: str, at: int) -> list[tuple[int, int]]:
    """Return the spans of the arguments of a call whose bracket opens at `at`."""
    end, depth, start = end_of(mask, at), 0, at + 1
    found = []
    for place in range(at + 1, end):
        depth += (mask[place] in _OPEN) - (mask[place] in _CLOSE)
        if mask[place] == "," and depth == 0:
            found.append((start, place))
            start = place + 1
    return [*found, (start, end)] if mask[start:end].strip() else found


def near(literal: str) -> str:
    """Return a number plus one, or a text with its last letter or digit replaced by the next; "" if there is none."""
    if re.fullmatch(r"-?\d+(\.\d+)?", literal):
        return f"{float(literal) + 1:g}" if "." in literal else str(int(literal) + 1)
    calm = re.sub(r"\$\([^()]*\)|\$\{[^}]*\}|\$+\w+|\\.|%[-\d.]*\w", lambda each: " " * len(each[0]), literal)
    last = re.search(r"[A-Za-z0-9](?=[^A-Za-z0-9]*\Z)", calm)
    if last is None:
        return ""
    following = {"z": "a", "Z": "A", "9": "0"}.get(last[0]) or chr(ord(last[0]) + 1)
    return literal[: last.start()] + following + literal[last.end() :]
