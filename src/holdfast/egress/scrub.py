"""Mask secrets in a stream, in the forms that programs write them in, in bounded memory.

These forms are found: the value itself; base64 (each alignment, both alphabets), base32, and hexadecimal digits, also
in lines or separated by blanks, colons, or dashes; UTF-16; and all of these with percent, backslash, or HTML escapes,
also nested and repeated. For speed, only escapes of characters that can be part of a value, or of an encoding of one,
are undone. A match is replaced by as many mask characters, so that announced lengths remain correct.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.entities import html5
from itertools import compress

from holdfast.vault.base import Secret
from holdfast.vault.sources import BYTES_MIN

_MASKS = b"*#!~^|\0"

SEPARATORS = b"\t\n\r +-:"
"""Separators between characters of an encoded value. Plus and dash are base64 digits too, but the other digits are
enough to recognize a value."""

_FOLD = bytes(range(256)).lower().replace(b"_", b"/", 1)
_KEPT = bytes(byte not in SEPARATORS for byte in range(256))
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")

WEAK = 4
"""Number of bytes that may begin a form by chance: an idle stream passes them on, and their form is still found."""

_SWALLOWED = 4
_FORM_MAX = 10
"""Longest form of one character, with its separator, in bytes."""


class Forms:
    """Search tables for all forms of some secrets. Construction takes about 1 ms for each secret, so reuse it.

    `longest` is the size of the longest form, the most that a `Scrubber` holds back.
    """

    def __init__(self, secrets: Iterable[Secret]) -> None:
        values = sorted({secret.reveal() for secret in secrets} - {""})
        self.mask = next(bytes([mask]) for mask in _MASKS if mask not in "".join(values).encode())
        self._escapes = Escapes(values)
        raw = {text.encode() for value in values for text in (value, value.replace(" ", "+"))}
        # A backslash of the value before an escaped character is taken for a part of that escape: expect that too.
        escaped = {json.dumps(value)[1:-1] for value in values}
        escaped |= {json.dumps(text)[1:-1] for text in escaped}
        ready = raw | {text.encode() for text in escaped}
        undone = {text for text in map(self._escapes.undo, ready) if len(text) >= BYTES_MIN}
        encoded = {_folded(form) for value in values for form in _encoded(value.encode())}
        self._raw, self._undone, self._encoded = _Texts(raw), _Texts(undone), _Texts(encoded)
        # The remainder of an encoded form whose beginning is mistaken for the end of a preceding escape.
        self._hints = sorted(form[_SWALLOWED:] for form in encoded)
        self._undone_alone = _Texts(undone - raw)
        # Strip the zero byte at one end, so that both byte orders are alike for ASCII text.
        wide = {value.encode(code).strip(b"\0") for value in values for code in ("utf-16-le", "utf-16-be")}
        self._wide = _Texts(wide)
        self._wide_patterns = [re.compile(re.escape(text)) for text in wide]  # `bytes.find` is slow among zero bytes
        self.longest = max((_FORM_MAX * len(text) for text in raw | encoded), default=0)
        self._count = len(values)

    def __repr__(self) -> str:
        return f"Forms(of {self._count})"

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Return the (start, end) spans of forms, in order, joined where they overlap."""
        if not self._count:
            return []
        found = list(self._raw.spans(data))
        if b"\0" in data:
            found += [match.span() for pattern in self._wide_patterns for match in pattern.finditer(data)]
        undone = self._escapes.undo(data)
        inside = list((self._undone_alone if undone is data else self._undone).spans(undone))
        folded = _folded(undone)
        if any(hint in folded for hint in self._hints):
            inside += _between(undone, self._encoded.spans(folded))
            found += _between(data, self._encoded.spans(_folded(data)))
        if inside and undone is not data:
            original = self._escapes.trace(data)
            inside = [(original(start), original(end)) for start, end in inside]
        joined: list[tuple[int, int]] = []
        for start, end in sorted(found + inside):
            if joined and start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined

    def unfinished(self, data: bytes) -> int:
        """Count the bytes at the end that may begin a form."""
        if not self._count:
            return 0
        window = data[-self.longest :]
        most = max(self._raw.unfinished(window), self._wide.unfinished(window))
        cut = self._escapes.unfinished(window)
        whole = window[:-cut] if cut else window
        undone = self._escapes.undo(whole)
        cut = self._escapes.unfinished(undone)
        known = undone[:-cut] if cut else undone
        start = len(known) - self._undone.unfinished(known)
        if size := self._begun(known):
            start = min(start, _places(known)[-size])
        if known is not window and (size := self._begun(window)):
            most = max(most, len(window) - _places(window)[-size])
        if start == len(undone) and len(whole) == len(window):
            return most
        original: Positions = self._escapes.trace(whole) if undone is not whole else lambda position: position
        return max(most, len(window) - original(start))

    def _begun(self, data: bytes) -> int:
        """Count the characters at the end that may begin an encoded form.

        No form continues after an empty line, so that events of a stream are passed on at once.
        """
        return 0 if data.endswith(_BLANK_LINES) else self._encoded.unfinished(_folded(data))

    def scrub(self, data: bytes) -> bytes:
        """Mask all forms in a header."""
        return _masked(data, self.spans(data), self.mask)


class Scrubber:
    """Mask forms in one stream. `feed` returns bytes that are safe to pass on, `end` the rest; `found` counts matches.

    `forms` may be replaced between two pieces.
    """

    def __init__(self, forms: Forms) -> None:
        self.found = 0
        self.forms = forms
        self._held = b""
        self._masked = 0  # number of held bytes that belong to a form that began earlier
        self._passed = 0  # number of held bytes already passed on, kept to find the rest of a form

    @property
    def waits(self) -> bool:
        """True while bytes are held back."""
        return len(self._held) > self._passed

    def feed(self, data: bytes) -> bytes:
        """Process the next piece, of any size; bytes that may begin a form are held back."""
        return self._pass_on(data, last=False)

    def end(self) -> bytes:
        """Return the bytes that were held back."""
        return self._pass_on(b"", last=True)

    def idle(self) -> bytes:
        """Return the held-back bytes during a pause if there are at most `WEAK`."""
        if len(self._held.translate(None, SEPARATORS)) > WEAK:
            return b""
        shown = _masked(self._held, [(0, self._masked)], self.forms.mask)[self._passed :]
        self._passed = len(self._held)
        return shown

    def _pass_on(self, data: bytes, *, last: bool) -> bytes:
        data = self._held + data
        spans = self.forms.spans(data)
        upto = len(data) if last else len(data) - self.forms.unfinished(data)
        self.found += sum(1 for start, _ in spans if start < upto)
        passed = _masked(data, [(0, self._masked), *spans] if self._masked else spans, self.forms.mask)
        over = [end - upto for start, end in spans if start < upto < end]
        self._masked = max(0, self._masked - upto, *over)
        self._held = data[upto:]
        out, self._passed = passed[self._passed : upto], max(0, self._passed - upto)
        return out


def _masked(data: bytes, spans: list[tuple[int, int]], mask: bytes) -> bytes:
    if not spans:
        return data
    whole = bytearray(data)
    for start, end in spans:
        whole[start:end] = mask * (end - start)
    return bytes(whole)


class _Texts:
    """Search for literal texts."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._texts = sorted(texts)
        # Map from the last bytes seen to the texts and prefix lengths that may end there, longest first.
        self._ends: dict[bytes, list[tuple[int, bytes]]] = {}
        for text in self._texts:
            for size in range(1, len(text)):
                self._ends.setdefault(text[max(0, size - _TAIL) : size], []).append((size, text))
        for beginnings in self._ends.values():
            beginnings.sort(reverse=True)

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        for text in self._texts:
            start = data.find(text)
            while start >= 0:
                yield start, start + len(text)
                start = data.find(text, start + 1)

    def unfinished(self, window: bytes) -> int:
        """Count the bytes at the end that begin one of the texts."""
        for size in range(min(_TAIL, len(window)), 0, -1):
            for most, text in self._ends.get(window[-size:], ()):
                if window.endswith(text[:most]):
                    return most
        return 0


_TAIL = 4


def _folded(data: bytes) -> bytes:
    """Normalize encoded values: lower case, one alphabet, no separators."""
    return data.translate(_FOLD, SEPARATORS)


def _places(data: bytes) -> list[int]:
    """Return the position in the data of each byte of the folded data."""
    return list(compress(range(len(data)), data.translate(_KEPT)))


def _between(data: bytes, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Translate spans of the folded data to spans of the data."""
    places: list[int] = []
    for start, end in spans:
        places = places or _places(data)
        yield places[start], places[end - 1] + 1


def _encoded(plain: bytes) -> Iterator[bytes]:
    yield plain.hex().encode()
    yield from _cores(plain, base64.b64encode, 3, 6)
    yield from _cores(plain, base64.b32encode, 5, 5)


def _cores(plain: bytes, encode: Callable[[bytes], bytes], group: int, bits: int) -> Iterator[bytes]:
    """Return the characters that depend only on the value, for each alignment of the value in an encoded text."""
    for before in range(group):
        size = before + len(plain)
        yield encode(bytes(before) + plain)[-(-before * 8 // bits) : size * 8 // bits]


_ALWAYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-\n\r"
_UNFINISHED_BYTES = 64
_UNFINISHED = re.compile(
    rb"(?:%(?:25)*[0-9a-fA-F]?"
    rb"|(?:\\+u[dD][89abAB][0-9a-fA-F]{2})?"
    rb"\\+(?:u(?:[0-9a-fA-F]{0,3}|\{[0-9a-fA-F]{0,6})|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?|[0-3][0-7]?)?"
    rb"|\\+u[dD][89abAB][0-9a-fA-F]{2}"
    rb"|&(?:amp;)*(?:#[xX]?[0-9a-fA-F]{0,8}|[A-Za-z]{0,8})?)\Z"
)
Positions = Callable[[int], int]
"""Map from a position after unescaping to the position in the original."""


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
        match = _UNFINISHED.search(data[-_UNFINISHED_BYTES:])
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
    return original[at] + position - made[at]


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
