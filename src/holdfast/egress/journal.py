"""What a proxy noted: kinds of requests with their counts, in a file that outlives it.

One JSON object a line, each with a position that is never used twice. The proxy gathers what comes close together
and writes it as one line for each kind. Whoever reads says up to where it has read for good; that part may be dropped.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import msgspec

from holdfast.egress.base import Notes
from holdfast.facts.egress import EgressSeen

KINDS_MAX = 400
"""Kinds that are gathered between two writes; of further ones the path is dropped, then all but their number."""

LINES_MAX = 20_000
"""Lines that nobody has read yet; what comes then is only counted."""

PATH_MAX = 200
"""Characters of a path that are kept."""

_SHRINK = 256 << 10
_MOST = 64 << 20


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """`n` is the position. `requests` and `bytes` are the totals of the session until then."""

    n: int
    seen: EgressSeen | None = None
    dropped: int = 0
    requests: int = 0
    bytes: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode

Kind = tuple[str, str, int, str, str, str, str]


class Journal:
    """The journal of a living proxy. Nothing else writes to it."""

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
        """Take one in; it is written at the next `flush`."""
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
        """Write what was gathered. Nothing is lost when the disk is full: it is tried again at the next one."""
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
        """What was read for good may go."""
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
    """What stands in a journal after that position, each kind once."""
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
    """What makes two requests of one kind."""
    return seen.verdict, seen.host, seen.port, seen.reason, seen.method, seen.path, seen.secret


def together(one: EgressSeen | None, other: EgressSeen) -> EgressSeen:
    """Two of one kind, added up."""
    if one is None:
        return other
    return msgspec.structs.replace(
        one, count=one.count + other.count, sent=one.sent + other.sent, received=one.received + other.received
    )


def _read(path: Path) -> list[_Line]:
    """Every whole line; a proxy that was killed may have left half of one at the end.

    The folder is the proxy's, which strangers may have taken over: no link is followed, and nothing but a file is read.
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
