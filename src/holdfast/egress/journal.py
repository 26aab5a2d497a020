"""Journal of a proxy: kinds of requests with their counts, in a file that outlives the proxy.

Each line is a JSON object with a position that is never reused. The proxy collects requests for a moment and writes
one line for each kind. A reader reports the position up to which it has stored the notes; that part may be dropped.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import msgspec

from holdfast.egress.base import Notes
from holdfast.facts.hands import EgressSeen

KINDS_MAX = 400
"""Largest number of kinds collected between two writes; further ones lose their path, then are only counted."""

LINES_MAX = 20_000
"""Largest number of unread lines in the file; further requests are only counted."""

PATH_MAX = 200
"""Number of characters stored of a path."""

_SHRINK = 256 << 10
_MOST = 64 << 20


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the file: `n` is its position, `requests` and `bytes` are the totals of the session so far."""

    n: int
    seen: EgressSeen | None = None
    dropped: int = 0
    requests: int = 0
    bytes: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode

Kind = tuple[str, str, int, str, str, str, str]


class Journal:
    """The journal of a running proxy, its only writer."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = _read(path)
        last = lines[-1] if lines else _Line(0)
        self.through = last.n
        self.requests = last.requests
        self.bytes = last.bytes
        self._count = len(lines)
        self._dropped = 0
        self._kinds: dict[Kind, EgressSeen] = {}
        self._rewrite(lines)

    def note(self, seen: EgressSeen) -> None:
        """Add a request; the next `flush` writes it."""
        seen = msgspec.structs.replace(seen, path=seen.path[:PATH_MAX], reason=seen.reason[:PATH_MAX])
        kind = kind_of(seen)
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            seen = msgspec.structs.replace(seen, path="", method="")
            kind = kind_of(seen)
        if kind not in self._kinds and (len(self._kinds) >= 2 * KINDS_MAX or self._count >= LINES_MAX):
            self._dropped += seen.count
            return
        self._kinds[kind] = together(self._kinds.get(kind), seen)

    def flush(self) -> None:
        """Write the collected notes. If the disk is full, they remain for the next flush."""
        if not self._kinds and not self._dropped:
            return
        lines, number = [], self.through
        for seen in self._kinds.values():
            number += 1
            lines.append(_Line(number, seen, 0, self.requests, self.bytes))
        if self._dropped:
            number += 1
            lines.append(_Line(number, None, self._dropped, self.requests, self.bytes))
        try:
            _append(self._path, b"".join(_encode(line) + b"\n" for line in lines))
        except OSError:
            return
        self.through = number
        self._count += len(lines)
        self._kinds.clear()
        self._dropped = 0

    def forget(self, through: int) -> None:
        """Drop notes up to a position that a reader has stored."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size < _SHRINK:
                return
            lines = _read(self._path)
            self._rewrite([line for line in lines if line.n > through] or lines[-1:])

    def _rewrite(self, lines: list[_Line]) -> None:
        self._count = len(lines)
        new = self._path.with_suffix(".new")
        new.unlink(missing_ok=True)
        _append(new, b"".join(_encode(line) + b"\n" for line in lines))
        new.replace(self._path)


def notes(path: Path, after: int) -> Notes:
    """Read the notes of a journal after a position, merged by kind."""
    kinds: dict[Kind, EgressSeen] = {}
    through, dropped = after, 0
    for line in _read(path):
        if line.n <= after:
            continue
        through = line.n
        dropped += line.dropped
        if line.seen is not None:
            kinds[kind_of(line.seen)] = together(kinds.get(kind_of(line.seen)), line.seen)
    return Notes(through, tuple(kinds.values()), dropped)


def kind_of(seen: EgressSeen) -> Kind:
    """Return the key of a request's kind."""
    return seen.verdict, seen.host, seen.port, seen.reason, seen.method, seen.path, seen.secret


def together(one: EgressSeen | None, other: EgressSeen) -> EgressSeen:
    """Add up two notes of one kind."""
    if one is None:
        return other
    return msgspec.structs.replace(
        one, count=one.count + other.count, sent=one.sent + other.sent, received=one.received + other.received
    )


def _read(path: Path) -> list[_Line]:
    """Read all whole lines; a killed proxy may have left a partial one at the end.

    The proxy that owns the folder may be compromised: no link is followed, and only a regular file is read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = os.pread(fd, _MOST, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
    out = []
    for text in data.split(b"\n"):
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            out.append(_decode(text))
    return out


def _append(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(fd).st_size
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)
