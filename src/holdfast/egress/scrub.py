"""Takes the values of secrets out of what flows by, in the forms that programs give them, in constant memory.

A value is found as it is, in base64 (at each of the three alignments, both alphabets, padded or not), in hexadecimal
digits, with any of its characters percent-encoded, and with any of them escaped as JSON does. It is replaced by as many
mask characters, so that announced lengths stay true. What was encrypted, compressed or cut up otherwise is not found.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from itertools import product

from holdfast.vault.base import Secret

_MASKS = b"*#!~^|\0"
_JSON_SHORT = '"\\/'


class Forms:
    """All forms of some secrets, made ready to be looked for; costs about a millisecond for each, so keep it.

    `longest` is how many bytes the longest form can have, the most that a `Scrubber` ever keeps back.
    """

    def __init__(self, secrets: Iterable[Secret]) -> None:
        values = {secret.reveal() for secret in secrets} - {""}
        self._each = [_Forms(value) for value in sorted(values)]
        used = "".join(values).encode()
        self.mask = next(bytes([mask]) for mask in _MASKS if mask not in used)
        self.longest = max((forms.longest for forms in self._each), default=0)

    def __repr__(self) -> str:
        return f"Forms(of {len(self._each)})"

    def spans(self, data: bytes) -> list[tuple[int, int]]:
        """Where forms are, from and to, in order and joined where they overlap."""
        if not self._each:
            return []
        lowered = data.lower()
        found = sorted(span for forms in self._each for span in forms.spans(data, lowered))
        joined: list[tuple[int, int]] = []
        for start, end in found:
            if joined and start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a form."""
        window = data[-self.longest :] if self.longest else b""
        lowered = window.lower()
        return max((forms.unfinished(window, lowered) for forms in self._each), default=0)

    def scrub(self, data: bytes) -> bytes:
        """All of it at once, for a header."""
        return _masked(data, self.spans(data), self.mask)


class Scrubber:
    """One stream. `feed` gives back what is safe to pass on, `end` the rest. `found` counts what was taken out."""

    def __init__(self, forms: Forms) -> None:
        self.found = 0
        self._forms = forms
        self._held = b""
        self._masked = 0  # so many bytes of what is held belong to a form that began before it

    def feed(self, data: bytes) -> bytes:
        """The next piece of the stream, of any size; what may be the beginning of a form is kept back."""
        return self._pass_on(data, last=False)

    def end(self) -> bytes:
        """What was kept back."""
        return self._pass_on(b"", last=True)

    def _pass_on(self, data: bytes, *, last: bool) -> bytes:
        data = self._held + data
        spans = self._forms.spans(data)
        upto = len(data) if last else len(data) - self._forms.unfinished(data)
        self.found += sum(1 for start, _ in spans if start < upto)
        passed = _masked(data, [(0, self._masked), *spans] if self._masked else spans, self._forms.mask)[:upto]
        over = [end - upto for start, end in spans if start < upto < end]
        self._masked = max(0, self._masked - upto, *over)
        self._held = data[upto:]
        return passed


def _masked(data: bytes, spans: list[tuple[int, int]], mask: bytes) -> bytes:
    if not spans:
        return data
    whole = bytearray(data)
    for start, end in spans:
        whole[start:end] = mask * (end - start)
    return bytes(whole)


class _Forms:
    """The forms of one value: whole texts that are searched for, and the one pattern of all that is escaped."""

    def __init__(self, value: str) -> None:
        plain = value.encode()
        whole = {plain, value.replace(" ", "+").encode(), *_base64_cores(plain)}
        self._whole = [_Whole(text) for text in sorted(whole)]
        self._hex = _Whole(plain.hex().encode())
        self._ways = [_ways_of(char) for char in value]
        self._escaped = re.compile(b"".join(_pattern_of(ways) for ways in self._ways))
        self._begins = re.compile(b"[%s]" % b"".join({re.escape(text[:1]) for text, _ in self._ways[0]}))
        self._hints = _hints(value)
        escaped = sum(max(len(text) for text, _ in ways) for ways in self._ways)
        self.longest = max(escaped, self._hex.size, *(text.size for text in self._whole))

    def spans(self, data: bytes, lowered: bytes) -> Iterator[tuple[int, int]]:
        for text in self._whole:
            yield from text.spans(data)
        yield from self._hex.spans(lowered)
        for hint in self._hints:
            yield from self._near(hint, data)

    def _near(self, hint: re.Pattern[bytes], data: bytes) -> Iterator[tuple[int, int]]:
        """The escaped forms with a hint in them. Their pattern is slow, so it is tried around hints alone."""
        seen = hint.search(data)
        while seen is not None:
            upto = seen.start() + 8 * self.longest
            window = max(0, seen.start() - self.longest), upto + self.longest
            yield from (match.span() for match in self._escaped.finditer(data, *window))
            seen = hint.search(data, upto)

    def unfinished(self, window: bytes, lowered: bytes) -> int:
        most = max(self._hex.unfinished(lowered), *(text.unfinished(window) for text in self._whole))
        for match in self._begins.finditer(window, 0, len(window) - most):
            if self._goes_on(window, lowered, match.start()):
                return len(window) - match.start()
        return most

    def _goes_on(self, window: bytes, lowered: bytes, start: int) -> bool:
        """Whether all from `start` on is the beginning of an escaped form."""
        places, end = {start}, len(window)
        for ways in self._ways:
            after = set()
            for place in places:
                for text, exact in ways:
                    seen = (window if exact else lowered)[place : place + len(text)]
                    if seen == text:
                        after.add(place + len(text))
                    elif place + len(seen) == end and text.startswith(seen):
                        return True
            if not after:
                return False
            places = after
        return False


class _Whole:
    """A text that is searched for as it is."""

    def __init__(self, text: bytes) -> None:
        self.size = len(text)
        self._text = text
        # By the last byte of what was seen: how many bytes of the text that may be, the most first.
        self._ends: dict[int, list[int]] = {}
        for size in range(len(text) - 1, 0, -1):
            self._ends.setdefault(text[size - 1], []).append(size)

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        start = data.find(self._text)
        while start >= 0:
            yield start, start + self.size
            start = data.find(self._text, start + 1)

    def unfinished(self, window: bytes) -> int:
        sizes = self._ends.get(window[-1], []) if window else []
        return next((size for size in sizes if window.endswith(self._text[:size])), 0)


def _base64_cores(plain: bytes) -> set[bytes]:
    """The characters of base64 that the value alone decides, wherever it stands in what is encoded."""
    cores = set()
    for before in range(3):
        size = before + len(plain)
        core = base64.b64encode(bytes(before) + plain)[-(-before * 8 // 6) : size * 8 // 6]
        cores |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    return cores


def _ways_of(char: str) -> list[tuple[bytes, bool]]:
    """How one character can be written, and whether that is exact; where not, the text is in small letters."""
    plain = char.encode()
    ways = [(plain, True)]
    percent = [(bytes([byte]), b"%%%02x" % byte) for byte in plain]
    ways += [(b"".join(choice), False) for choice in product(*percent) if b"".join(choice) != plain]
    units = char.encode("utf-16-be")
    ways.append((b"".join(b"\\u" + units[at : at + 2].hex().encode() for at in range(0, len(units), 2)), False))
    if char in _JSON_SHORT:
        ways.append((b"\\" + plain, True))
    if char == " ":
        ways.append((b"+", True))
    return ways


def _pattern_of(ways: list[tuple[bytes, bool]]) -> bytes:
    return b"(?:" + b"|".join(re.escape(text) if exact else b"(?i:%s)" % re.escape(text) for text, exact in ways) + b")"


def _hints(value: str) -> list[re.Pattern[bytes]]:
    """What is in every escaped form of the value, and seldom elsewhere."""
    percent = b"|".join(sorted({b"%02x" % byte for byte in value.encode()}))
    units = value.encode("utf-16-be")
    pairs = b"|".join(sorted({units[at : at + 2].hex().encode() for at in range(0, len(units), 2)}))
    short = b"".join(re.escape(char.encode()) for char in _JSON_SHORT if char in value)
    quoted = b"\\\\(?:(?i:u(?:%s))%s)" % (pairs, b"|[%s]" % short if short else b"")
    return [re.compile(b"%%(?i:%s)" % percent), re.compile(quoted)]
