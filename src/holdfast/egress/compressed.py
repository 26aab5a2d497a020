"""Search response bodies for secrets: mask them in plain bytes, and detect them in compressed ones.

A secret in compressed bytes cannot be masked, so the response is cut off before the secret's last bytes.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.egress.scrub import Forms, Scrubber

PIECE = 1 << 18
"""Largest number of bytes decompressed at once."""

EXPANDS_MAX = 300
"""Highest compression ratio of a body; a body above it is cut off, which bounds the search."""

ROOM = 64 << 20
"""Decompressed bytes allowed for a body of any size."""

MEMBERS, MEMBER_MIN = 64, 256
"""Concatenated compressed files allowed in a body, and the bytes that allow one more."""

_ZSTD = b"\x28\xb5\x2f\xfd"


class Hidden(Exception):
    """Compressed bytes contain a secret or cannot be searched; the message names the case."""


class _Decompressor(Protocol):
    """Interface of the standard library's decompressors."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


_MAKERS: tuple[Callable[[], _Decompressor], ...] = (
    lambda: zlib.decompressobj(32 + zlib.MAX_WBITS),  # gzip and zlib, by their headers
    lambda: zlib.decompressobj(-zlib.MAX_WBITS),  # deflate without a header
    bz2.BZ2Decompressor,
    lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),  # the older format has no magic number, and zero bytes look like it
)


class Body:
    """One response body. `feed` returns bytes to pass on, `idle` those to pass on in a pause, `end` the rest.

    All raise `Hidden`.
    """

    def __init__(self, forms: Forms) -> None:
        self._plain = Scrubber(forms)
        self._readings = [_Reading(make, forms) for make in _MAKERS]
        self._kept = b""
        self._head = b""

    def feed(self, data: bytes, forms: Forms) -> bytes:
        """Process the next piece, and search it and all later ones for `forms`."""
        if len(self._head) < len(_ZSTD):
            self._head += data[: len(_ZSTD)]
            if self._head.startswith(_ZSTD):
                raise Hidden("is compressed with zstd, which cannot be searched for secrets")
        self._plain.forms = forms
        self._readings = [reading for reading in self._readings if reading.feed(data, forms)]
        return self._passed(self._plain.feed(data))

    @property
    def waits(self) -> bool:
        """True while bytes are held back."""
        return bool(self._kept) or self._plain.waits

    def idle(self) -> bytes:
        """Return bytes that may be passed on in a pause."""
        for reading in self._readings:
            reading.idle()
        return self._passed(self._plain.idle())

    def end(self) -> bytes:
        """Return the bytes that were held back."""
        for reading in self._readings:
            reading.end()
        return self._kept + self._plain.end()

    def _passed(self, data: bytes) -> bytes:
        """Return the bytes to pass on; hold compressed bytes back while their content may begin a form."""
        data, self._kept = self._kept + data, b""
        if any(reading.waits for reading in self._readings):
            data, self._kept = b"", data
        return data


class _Reading:
    """The body read under one assumed compression."""

    def __init__(self, make: Callable[[], _Decompressor], forms: Forms) -> None:
        self._make = make
        self._decompressor = make()
        self._scrubber = Scrubber(forms)
        self._in = self._out = self._members = 0

    @property
    def waits(self) -> bool:
        return self._scrubber.waits

    def idle(self) -> None:
        self._scrubber.idle()

    def feed(self, data: bytes, forms: Forms) -> bool:
        """Process a piece. Return False once the body cannot have this compression."""
        self._scrubber.forms = forms
        self._in += len(data)
        try:
            for piece in self._pieces(data):
                self._scrubber.feed(piece)
                self._check(self._out + len(piece))
        except (zlib.error, OSError, EOFError, lzma.LZMAError):
            return False
        return True

    def end(self) -> None:
        """Check the end of the body."""
        self._scrubber.end()
        self._check(self._out)

    def _check(self, out: int) -> None:
        self._out = out
        if self._scrubber.found:
            raise Hidden("has a secret in compressed bytes, where it cannot be masked")
        if out > ROOM + EXPANDS_MAX * self._in or self._members > MEMBERS + self._in // MEMBER_MIN:
            raise Hidden("is compressed more than can be searched for secrets")

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        while True:
            if self._decompressor.eof and self._make is _MAKERS[1]:
                raise EOFError  # arbitrary bytes may look like a series of short deflate streams
            if self._decompressor.eof:  # such files may be concatenated
                data, self._decompressor = self._decompressor.unused_data or data, self._make()
                self._members += 1
            piece = self._decompressor.decompress(data, PIECE)
            data = getattr(self._decompressor, "unconsumed_tail", b"")
            yield piece
            ended = self._decompressor.eof and not self._decompressor.unused_data
            if ended or (not self._decompressor.eof and len(piece) < PIECE and not data):
                return
