"""The parts of the file tools that need no file: shared by the sandbox agent and the in-memory hands."""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE_MAX = 2_000
"""Characters of one line that `read` shows."""

LINE_KEPT = LINE_MAX * 4
"""Bytes that can hold that many characters."""

MATCH_MAX = 500
"""Characters of one matching line that `grep` shows."""

RESULTS_MAX = 1_000
"""Maximum number of paths that `glob`, and of lines that `grep`, list."""

_BINARY_PROBE = 8192


class Refusal(Exception):
    """A tool call that cannot be carried out; the message is for the model."""


def is_binary(data: bytes) -> bool:
    """True if this beginning of a file holds a zero byte."""
    return b"\0" in data[:_BINARY_PROBE]


def stale(tool: str, path: str, exists: bool, before: str, seen: str) -> str:
    """Return why a write or edit must not change `path`; empty if it may (S18).

    `before` is the digest of the file now, `seen` the one under which the model last read it.
    """
    if not exists:
        return "" if tool == "write" else f"{path} does not exist; use write to make it"
    if not seen:
        return f"{path} exists and has not been read in this conversation; read it first"
    if seen != before:
        return f"{path} has changed since it was last read; read it again before the {tool}"
    return ""


def edited(path: str, data: bytes, old: str, new: str, replace_all: bool) -> bytes:
    """Return the content after an edit. Raises `Refusal`."""
    if not old:
        raise Refusal("old_string is empty; give the text to replace, or use write for a whole file")
    if old == new:
        raise Refusal("old_string and new_string are the same; nothing would change")
    before, after = as_bytes("old_string", old), as_bytes("new_string", new)
    count = data.count(before)
    if count == 0:
        raise Refusal(f"old_string does not occur in {path}; read the file and copy the text exactly")
    if count > 1 and not replace_all:
        raise Refusal(
            f"old_string occurs {count} times in {path}; give more of the surrounding text so that it occurs once, "
            "or set replace_all"
        )
    return data.replace(before, after)


def as_bytes(name: str, text: str) -> bytes:
    """Encode text as UTF-8. Raises `Refusal` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refusal(f"{name} holds characters that are not valid Unicode") from None


def view_bounds(view_range: list[int] | None) -> tuple[int, int | None]:
    """Return the first and last line, counted from 1; None for the end. Raises `Refusal`."""
    if view_range is None:
        return 1, None
    first, last = view_range
    if first < 1:
        raise Refusal("view_range begins at line 1")
    if last == -1:
        return first, None
    if last < first:
        raise Refusal(f"view_range ends at line {last}, before it begins at {first}")
    return first, last


class View:
    """Numbered lines of a file, within a range and a number of bytes."""

    def __init__(self, view_range: list[int] | None, cap: int) -> None:
        self._first, self._last = view_bounds(view_range)
        self._left = cap
        self._shown: list[str] = []
        self._next = 0
        self.lines = 0

    def add(self, line: bytes, length: int) -> None:
        """Add the beginning of the next line; the length is that of the whole line without its end."""
        self.lines += 1
        number = self.lines
        if number < self._first or (self._last is not None and number > self._last) or self._next:
            return
        text = line[:LINE_KEPT].decode("utf-8", "replace")
        if len(text) > LINE_MAX or length > LINE_KEPT:
            text = f"{text[:LINE_MAX]} [... this line has {length} bytes]"
        entry = f"{number:6d}\t{text}"
        size = len(entry.encode("utf-8", "replace")) + 1
        if self._shown and size > self._left:
            self._next = number
            return
        self._left -= size
        self._shown.append(entry)

    def text(self, path: str) -> str:
        """Return the text for the model."""
        if not self.lines:
            return f"[{path} is empty]"
        if not self._shown:
            return f"[{path} has {self.lines} lines; none of them is in that range]"
        if self._next:
            more = f"view_range [{self._next}, -1]"
            self._shown.append(f"[... {path} has {self.lines} lines; read on with {more}]")
        return "\n".join(self._shown)


def pattern_of(pattern: str) -> re.Pattern[str]:
    """Translate a glob over relative paths to a regular expression: `**` crosses folders, `*` and `?` do not."""
    out = ["".join(_glob_part(part)) for part in _split_braces(pattern)]
    return re.compile("(?:" + "|".join(out) + r")\Z", re.DOTALL)


def _split_braces(pattern: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None or len(pattern) > 500:
        return [pattern]
    head, tail = pattern[: found.start()], pattern[found.end() :]
    out: list[str] = []
    for choice in found.group(1).split(","):
        out += _split_braces(head + choice + tail)
        if len(out) > 200:
            raise Refusal("the pattern has too many alternatives")
    return out


def _glob_part(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            stars = 1
            while pattern[at : at + 1] == "*":
                stars, at = stars + 1, at + 1
            if stars == 1:
                yield "[^/]*"
            elif pattern[at : at + 1] == "/":
                at += 1
                yield "(?:[^/]+/)*"
            else:
                yield ".*"
        elif char == "?":
            yield "[^/]"
        elif char == "[" and "]" in pattern[at + 1 :]:
            end = pattern.index("]", at + 1)
            body = pattern[at:end].replace("\\", "\\\\").replace("[", "\\[")
            yield "[" + ("^" + body[1:] if body[:1] in "!^" else body) + "]"
            at = end + 1
        else:
            yield re.escape(char)


def expression(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression from the model. Raises `Refusal`."""
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Refusal(f"the pattern is not a regular expression (Python's syntax): {error}") from None


def matching_lines(path: str, data: bytes, wanted: re.Pattern[str]) -> Iterator[str]:
    """Return `path:line:text` of each matching line."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8", "replace").rstrip("\r")
        if wanted.search(text):
            shown = text if len(text) <= MATCH_MAX else f"{text[:MATCH_MAX]} [... {len(text)} characters]"
            yield f"{path}:{number}:{shown}"


class Lines:
    """Result lines within a count and a number of bytes, and a sentence if there were more."""

    def __init__(self, cap: int) -> None:
        self._left = cap
        self._shown: list[str] = []
        self.full = False

    def add(self, line: str) -> bool:
        """Add one line; False when no more fit."""
        size = len(line.encode("utf-8", "replace")) + 1
        if len(self._shown) >= RESULTS_MAX or (self._shown and size > self._left):
            self.full = True
            return False
        self._left -= size
        self._shown.append(line)
        return True

    def text(self, nothing: str) -> str:
        """Return the text for the model; `nothing` if there is no line."""
        if self.full:
            return "\n".join([*self._shown, "[... there are more; narrow the pattern or the path]"])
        return "\n".join(self._shown) or nothing
