"""Escapes undone before a search: percent, backslash, and HTML entities, also nested and repeated.

Only escapes of characters that can be part of a value, or of an encoding of one, are undone: the others cost time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from html.entities import html5

_ALWAYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\n\r"
_TAIL = 64
_UNFINISHED = re.compile(
    rb"(?:%(?:25)*[0-9a-fA-F]?"
    rb"|(?:\\+u[dD][89abAB][0-9a-fA-F]{2})?"
    rb"\\+(?:u(?:[0-9a-fA-F]{0,3}|\{[0-9a-fA-F]{0,6})|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?|[0-3][0-7]?)?"
    rb"|\\+u[dD][89abAB][0-9a-fA-F]{2}"
    rb"|&(?:amp;)*(?:#[xX]?[0-9a-fA-F]{0,8}|[A-Za-z]{0,8})?)\Z"
)
Positions = Callable[[int], int]
"""The position in the original for a position in what was made of it."""


class Escapes:
    """The escapes of the characters of some values."""

    def __init__(self, values: Iterable[str]) -> None:
        chars = sorted({*_ALWAYS, *"".join(values)})
        # A value with the first byte of an escape in it can come as an escape within an escape.
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
        """The data with its escapes undone: the same object when there are none."""
        for _ in range(self._rounds):
            before = data
            for kind in self._kinds:
                data = kind.undo(data)
            if data is before:
                break
        return data

    def trace(self, data: bytes) -> Positions:
        """Where positions in `undo(data)` are in the data; slower than `undo`, for the rare find."""
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
        """How many bytes at the end may be the beginning of an escape."""
        match = _UNFINISHED.search(data[-_TAIL:])
        return len(match[0]) if match is not None else 0


class _Kind:
    """One kind of escape: its first byte, its pattern, and what each group of that stands for."""

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
        """Each escape is one step in the positions."""
        made, original = [0], [0]
        for match in self._pattern.finditer(data) if self._first in data else ():
            text = self._one(match)
            start = made[-1] + match.start() - original[-1]
            made += [start, start + len(text)]
            original += [match.start(), match.end()]
        return lambda position: _step(made, original, position)


def _step(made: list[int], original: list[int], position: int) -> int:
    at = bisect_right(made, position) - 1
    return original[at] + position - made[at]


def _units(char: str) -> bytes:
    """The UTF-16 units of a character in hexadecimal digits, with a `u` between two."""
    units = char.encode("utf-16-be")
    return b"u".join(units[at : at + 2].hex().encode() for at in range(0, len(units), 2))


def _any(table: Iterable[bytes]) -> bytes:
    """A pattern of any of these words; of none when there are none."""
    return b"(?:%b)" % b"|".join(sorted(map(re.escape, table), reverse=True)) if table else b"(?!)"


def _numbers(table: Iterable[bytes]) -> bytes:
    """A pattern of any of these numbers in small or capital digits, short for the sake of speed."""
    last: dict[bytes, bytes] = {}
    for number in table:
        last[number[:-1]] = last.get(number[:-1], b"") + number[-1:] + number[-1:].upper()
    groups = [b"%b[%b]" % (_both(head), digits) for head, digits in sorted(last.items(), reverse=True)]
    return b"(?:%b)" % b"|".join(groups) if groups else b"(?!)"


def _both(digits: bytes) -> bytes:
    return re.sub(b"[a-z]", lambda match: b"[%b%b]" % (match[0], match[0].upper()), digits)
