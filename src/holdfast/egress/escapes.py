"""Undo the escapes of the characters of some values: percent, backslash, and HTML, also nested and repeated."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.entities import html5

_ALWAYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\n\r"
ESCAPE_MAX = 64
"""Longest escape that is waited for, in bytes."""

_UNFINISHED = re.compile(
    rb"(?:%(?:25)*[0-9a-fA-F]?"
    rb"|(?:\\+u[dD][89abAB][0-9a-fA-F]{2})?"
    rb"\\+(?:u(?:[0-9a-fA-F]{0,3}|\{[0-9a-fA-F]{0,6})|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?|[0-3][0-7]?)?"
    rb"|\\+u[dD][89abAB][0-9a-fA-F]{2}"
    rb"|&(?:amp;)*(?:#[xX]?[0-9a-fA-F]{0,8}|[A-Za-z]{0,8})?)\Z"
)
Positions = Callable[[int], int]
"""Map from a position after unescaping to the position in the original; within an escape, to its first byte."""


class Escapes:
    """The escapes of the characters of some values."""

    def __init__(self, values: Iterable[str]) -> None:
        chars = sorted({*_ALWAYS, *"".join(values)})
        # A value that contains the first byte of an escape can occur as an escape within an escape.
        self._rounds = 2 if any(first in chars for first in "%\\&") else 1
        wide = [char for char in chars if not char.isascii()]
        own = {byte for char in chars for byte in char.encode()}
        pairs = {b"%02x" % byte: bytes([byte]) for byte in own}
        narrow = {pair: byte for pair, byte in pairs.items() if byte.isascii()}
        units = {_units(char): char.encode() for char in wide}
        octal = {b"%03o" % byte: bytes([byte]) for byte in own}
        short = {char.encode(): char.encode() for char in chars if char in "\"'\\/&%"} | {b"n": b"\n", b"r": b"\r"}
        decimal = {b"%d" % ord(char): char.encode() for char in chars}
        points = {b"%x" % ord(char): char.encode() for char in wide}
        named = {name[:-1].encode(): text.encode() for name, text in html5.items() if name[-1] == ";" and text in chars}
        self._kinds = (
            _Kind(b"%", rb"%%(?:25)*(%b)" % _numbers(pairs), pairs),
            _Kind(
                b"\\",
                rb"\\\\*(?:u(?:00|\{0*)(%b)\}?|U000000(%b)|x(%b)|([0-3][0-7]{2})|([%b])|u(%b))"
                % (
                    *(_numbers(narrow), _numbers(narrow), _numbers(pairs)),
                    *(b"".join(map(re.escape, short)), _numbers(units).replace(b"[uU]", rb"\\+u")),
                ),
                *(narrow, narrow, pairs, octal, short, units),
            ),
            _Kind(
                b"&",
                rb"&(?=[#a%b])(?:amp;)*(?:#(?:0*(%b)(?![0-9])|[xX]0*(%b|%b)(?![0-9a-fA-F]));?|(%b);)"
                % (
                    *(b"".join({name[:1] for name in named}), _numbers(decimal)),
                    *(_numbers(narrow), _numbers(points), _any(named)),
                ),
                *(decimal, narrow | points, named),
            ),
        )

    def undo(self, data: bytes) -> bytes:
        """Undo all escapes; returns the same object if there are none."""
        for _ in range(self._rounds):
            before = data
            for kind in self._kinds:
                data = kind.undo(data)
            if data is before:
                break
        return data

    def readings(self, text: bytes) -> Iterator[bytes]:
        """Yield what `undo` may make of a text that is itself escaped: undoing begins with each of its steps."""
        steps = self._kinds * self._rounds
        for first in range(len(steps) + 1):
            undone = text
            for kind in steps[first:]:
                undone = kind.undo(undone)
            yield undone

    def trace(self, data: bytes) -> Positions:
        """Return a map from positions in `undo(data)` to positions in the data. Slower than `undo`."""
        steps: list[Positions] = []
        for _ in range(self._rounds):
            for kind in self._kinds:
                steps.append(kind.trace(data))
                data = kind.undo(data)

        def original(position: int) -> int:
            for step in reversed(steps):
                position = step(position)
            return position

        return original

    def unfinished(self, data: bytes) -> int:
        """Count the bytes at the end that may begin an escape."""
        match = _UNFINISHED.search(data[-ESCAPE_MAX:])
        return len(match[0]) if match is not None else 0


class _Kind:
    """One kind of escape: its first byte, its pattern, and a table of values for each group of the pattern."""

    def __init__(self, first: bytes, pattern: bytes, *tables: Mapping[bytes, bytes]) -> None:
        self._first = first
        self._pattern = re.compile(pattern)
        self._tables = tables

    def undo(self, data: bytes) -> bytes:
        return self._pattern.sub(self._one, data) if self._first in data else data

    def _one(self, match: re.Match[bytes]) -> bytes:
        group = match.lastindex or 1
        text, table = match[group], self._tables[group - 1]
        return table.get(text) or table.get(text.lower().replace(b"\\", b"")) or match[0]

    def trace(self, data: bytes) -> Positions:
        """Return a map from positions after `undo` to positions in the data."""
        made, original = [0], [0]
        for match in self._pattern.finditer(data) if self._first in data else ():
            text = self._one(match)
            start = made[-1] + match.start() - original[-1]
            made += [start, start + len(text)]
            original += [match.start(), match.end()]
        return lambda position: _step(made, original, position)


def _step(made: list[int], original: list[int], position: int) -> int:
    at = bisect_right(made, position) - 1
    return original[at] + (0 if at % 2 else position - made[at])


def _units(char: str) -> bytes:
    """Return the UTF-16 units of a character in hexadecimal digits, separated by `u`."""
    units = char.encode("utf-16-be")
    return b"u".join(units[at : at + 2].hex().encode() for at in range(0, len(units), 2))


def _any(table: Iterable[bytes]) -> bytes:
    """Return a pattern that matches any of the words; nothing if there are none."""
    return b"(?:%b)" % b"|".join(sorted(map(re.escape, table), reverse=True)) if table else b"(?!)"


def _numbers(table: Iterable[bytes]) -> bytes:
    """Return a pattern that matches any of the numbers in lower or upper case, short for speed."""
    last: dict[bytes, bytes] = {}
    for number in table:
        last[number[:-1]] = last.get(number[:-1], b"") + number[-1:] + number[-1:].upper()
    groups = [b"%b[%b]" % (_both(head), digits) for head, digits in sorted(last.items(), reverse=True)]
    return b"(?:%b)" % b"|".join(groups) if groups else b"(?!)"


def _both(digits: bytes) -> bytes:
    return re.sub(b"[a-z]", lambda match: b"[%b%b]" % (match[0], match[0].upper()), digits)
