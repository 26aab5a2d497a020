"""Mask secrets in a stream, in the forms that programs write them in, in bounded memory.

These forms are found: the value itself; base64 (each alignment, both alphabets), base32, and hexadecimal digits, also
in lines or separated by blanks, colons, or dashes; UTF-16; and all of these with percent, backslash, or HTML escapes,
also nested and repeated. For speed, only escapes of characters that can be part of a value, or of an encoding of one,
are undone. What is around a form may take its first or last characters into an escape: the `n` of `\\nAB&#x27;`. So
where the rest of a form is found, the bytes are read again from each byte of that escape. A match is replaced by as
many mask characters, so that announced lengths remain correct.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from holdfast.egress.escapes import ESCAPE_MAX, Escapes, Positions
from holdfast.vault.base import Secret

_MASKS = b"*#!~^|\0"

SEPARATORS = b"\t\n\r +-:"
"""Separators between characters of an encoded value. Plus and dash are base64 digits too, but the other digits are
enough to recognize a value."""

_FOLD = bytes(range(256)).lower().replace(b"_", b"/", 1)
_KEPT = bytes(byte not in SEPARATORS for byte in range(256))
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")

WEAK = 4
"""Number of bytes that may begin a form by chance: an idle stream passes them on, and their form is still found."""

_TAKEN = 16
"""Most characters at the beginning of a value that are looked for in an escape before it."""

_UNDONE_MIN = 5
"""Shortest text that is searched for, in bytes: a value of eight may contain an escape itself."""

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
        escaped |= {json.dumps(text)[1:-1] for text in escaped} | {html.escape(value) for value in values}
        undone = {self._escapes.undo(text.encode()) for text in escaped}
        undone |= {reading for text in raw for reading in self._escapes.readings(text)}
        undone = {text for text in undone if len(text) >= _UNDONE_MIN}
        encoded = {_folded(form) for value in values for form in _encoded(value.encode())}
        self._raw, self._undone, self._encoded = _Texts(raw), _Texts(undone), _Texts(encoded)
        self._parts = [_part(text, self._escapes.unfinished(text)) for text in sorted(undone)]
        self._encoded_parts = [_part(form, 0) for form in sorted(encoded)]
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
        if coded := any(part in folded for part, _, _ in self._encoded_parts):
            inside += _between(undone, self._encoded.spans(folded))
        if undone is data:
            found += inside
        elif inside or coded or any(part in undone for part, _, _ in self._parts):
            original = self._escapes.trace(data)
            found += [(original(start), original(end)) for start, end in inside]
            found += _Reading(data, undone, self._escapes.undo, original).cut(self._parts)
            if coded:
                found += _Reading(data, undone, self._escapes.undo, original, folds=True).cut(self._encoded_parts)
        joined: list[tuple[int, int]] = []
        for start, end in sorted(found):
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
        if known is window:
            return max(most, len(window) - start)
        original = self._escapes.trace(whole)
        begun = _Reading(whole, known, self._escapes.undo, original).begun(self._undone)
        if not known.endswith(_BLANK_LINES):
            begun = min(begun, _Reading(whole, known, self._escapes.undo, original, folds=True).begun(self._encoded))
        return max(most, len(window) - min(original(start), begun))

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
            yield from _finds(data, text)

    def unfinished(self, window: bytes) -> int:
        """Count the bytes at the end that begin one of the texts."""
        for size in range(min(_TAIL, len(window)), 0, -1):
            for most, text in self._ends.get(window[-size:], ()):
                if window.endswith(text[:most]):
                    return most
        return 0

    def begin_with(self, data: bytes) -> bool:
        return any(text.startswith(data) for text in self._texts)

    def hold(self, data: bytes) -> bool:
        return any(data in text for text in self._texts)


_TAIL = 4


def _finds(data: bytes, text: bytes) -> Iterator[tuple[int, int]]:
    start = data.find(text)
    while start >= 0:
        yield start, start + len(text)
        start = data.find(text, start + 1)


class _Part(NamedTuple):
    """Bytes of a text that no escape around it takes, where they begin in it, and the whole text."""

    part: bytes
    begin: int
    text: bytes


def _part(text: bytes, last: int) -> _Part:
    """Leave out first characters, and the given number of last ones, as far as `WEAK` bytes or more are left."""
    end = max(len(text) - last, WEAK)
    begin = min(len(text) // 2, _TAKEN, end - WEAK)
    return _Part(text[begin:end], begin, text)


class _Reading:
    """Data with its escapes undone, and where each byte of that comes from.

    `read` undoes them, `original` maps a position after it to one in the data. With `folds`, without separators.
    """

    def __init__(
        self, data: bytes, undone: bytes, read: Callable[[bytes], bytes], original: Positions, *, folds: bool = False
    ) -> None:
        self._data = data
        self._read: Callable[[bytes], bytes] = (lambda data: _folded(read(data))) if folds else read
        self._seen = _folded(undone) if folds else undone
        self._places: Sequence[int] = _places(undone) if folds else range(len(undone))
        self._original = original
        self._end = original(len(undone))

    def cut(self, parts: Iterable[_Part]) -> Iterator[tuple[int, int]]:
        """Yield the spans in the data of texts of which only a part is read."""
        for part, begin, text in parts:
            for at, end in _finds(self._seen, part):
                if at >= begin and self._seen.startswith(text, at - begin):
                    continue  # all of it is read
                left, missing = at, begin
                while left and missing and self._seen[left - 1] == text[missing - 1]:
                    left, missing = left - 1, missing - 1
                starts = [] if missing else [self._start(left)]
                starts += [place for edge in range(left, at + 1) for place in self._inside(edge)]
                stop = self._original(self._places[end - 1] + 1)
                missing = len(text) - begin - len(part)
                last = min(stop + max(_FORM_MAX * missing, ESCAPE_MAX), len(self._data))
                stops = range(last, stop, -1) if missing else [stop]
                pairs = ((start, stop) for start in starts for stop in stops)
                found = next((pair for pair in pairs if self._read(self._data[slice(*pair)]) == text), None)
                if found is not None:
                    yield found

    def begun(self, texts: _Texts) -> int:
        """Return where in the data a text may begin of which the end is read; the length if nowhere."""
        begun = len(self._data)
        for left in range(len(self._seen), -1, -1):
            read = self._seen[left:]
            if not texts.hold(read):
                break
            for start in self._inside(left):
                if start < begun and texts.begin_with(self._read(self._data[start : self._start(left)]) + read):
                    begun = start
        return begun

    def _start(self, at: int) -> int:
        return self._original(self._places[at]) if at < len(self._places) else self._end

    def _inside(self, at: int) -> range:
        """Return the positions in the data within the escape that ends before the byte `at`."""
        stop = self._start(at)
        return range(max(self._start(at - 1) + 1 if at else 0, stop - ESCAPE_MAX), stop)


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
