"""What a call printed, by position: from the files that its runner keeps, or from its result.

The files lie in a folder of the hands' user, so their content is as little to be trusted as output itself, and they
are opened as such: no link is followed, nothing but a plain file of the folder's owner is read. The first is
`NAME.txt`, later ones carry in their names the position of their first byte: `NAME.POSITION.txt`.
"""

from __future__ import annotations

import codecs
import os
import stat
from typing import Any, NamedTuple

LEAST = 4
"""Bytes that one answer must be able to hold: the longest character."""

MOST = 1 << 20
"""Bytes of one answer at most."""


class Piece(NamedTuple):
    """A piece of output. `seq` is the position of its first byte, `next_seq` of the byte after it."""

    seq: int
    text: str
    next_seq: int
    dropped: int
    ended: bool


def file_name(call_id: str) -> str:
    """The name of a call's first output file."""
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in call_id) + ".txt"


def later_name(first: str, position: int) -> str:
    """The name of the file that goes on at that position."""
    return f"{first.removesuffix('.txt')}.{position}.txt"


def cut(data: bytes, seq: int, after: int, max_bytes: int, *, over: bool) -> Piece:
    """Of `data`, which begins at position `seq`, as much as an answer holds; no character is cut in two.

    `over` says that nothing comes after `data`.
    """
    limit = min(max(max_bytes, LEAST), MOST)
    whole = over and len(data) <= limit
    data = data[:limit]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, whole)
    held = 0 if whole else len(decoder.getstate()[0])
    return Piece(seq, text, seq + len(data) - held, max(0, seq - after), whole)


def piece_of(
    folder: str, call_id: str, after: int, max_bytes: int, result: dict[str, Any] | None, *, over: bool
) -> Piece:
    """What a call printed from `after` on. `result` is its end, None without one; `over` says that nothing comes."""
    if result is not None:
        piece = from_result(result, after, max_bytes)
        return piece or from_files(folder, call_id, after, max_bytes, int(result.get("bytes_total", 0)))
    piece = from_files(folder, call_id, after, max_bytes, None)
    if over and not piece.text:
        return from_files(folder, call_id, after, max_bytes, piece.seq)
    return piece


def from_result(result: dict[str, Any], after: int, max_bytes: int) -> Piece | None:
    """What a call printed, when its result holds all of it as it was; else None."""
    total = int(result.get("bytes_total", 0))
    if result.get("truncated") or result.get("output_path"):
        return None
    data = str(result.get("output", "")).encode("utf-8", "replace")
    if len(data) != total:  # bytes that are no text stand in it as others
        return None
    after = min(after, total)
    return cut(data[after:], after, after, max_bytes, over=True)


def from_files(folder: str, call_id: str, after: int, max_bytes: int, total: int | None) -> Piece:
    """What the files hold from `after` on. `total` is how much was printed, None while it is not known."""
    limit = min(max(max_bytes, LEAST), MOST)
    try:
        parts = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return _nothing(after, total)
    try:
        seq, data, more = _collect(parts, file_name(call_id), os.fstat(parts).st_uid, after, limit)
    finally:
        os.close(parts)
    if not data:
        return _nothing(after, total)
    over = total is not None and not more and seq + len(data) >= total
    piece = cut(data, seq, after, limit, over=over)
    if more and not piece.text:  # the rest of this character is not kept
        end = seq + len(data)
        return Piece(seq, data.decode("utf-8", "replace"), end, piece.dropped, False)
    return piece


def _nothing(after: int, total: int | None) -> Piece:
    """Nothing is kept from there on."""
    end = after if total is None else max(after, total)
    return Piece(end, "", end, end - after, total is not None)


def _collect(parts: int, first: str, uid: int, after: int, limit: int) -> tuple[int, bytes, bool]:
    """Position and bytes of the first run of kept bytes from `after` on; whether more is kept after a gap."""
    seq, data = after, b""
    for position, name in _found(parts, first):
        fd = _open(parts, name, uid)
        if fd < 0:
            continue
        try:
            end = position + os.fstat(fd).st_size
            at = seq + len(data)
            if end <= at:
                continue
            if position > at:
                if data:
                    return seq, data, True
                seq = at = position
            data += os.pread(fd, limit - len(data) + LEAST, at - position)
        except OSError:
            continue
        finally:
            os.close(fd)
        if len(data) > limit:
            return seq, data, True
    return seq, data, False


def _found(parts: int, first: str) -> list[tuple[int, str]]:
    """The files of a call by their positions."""
    stem = first.removesuffix(".txt") + "."
    out = []
    for name in os.listdir(parts):
        if name == first:
            out.append((0, name))
        elif name.startswith(stem) and name.endswith(".txt"):
            middle = name[len(stem) : -len(".txt")]
            if middle.isascii() and middle.isdigit() and len(middle) < 19:
                out.append((int(middle), name))
    return sorted(out)


def _open(parts: int, name: str, uid: int) -> int:
    """A plain file of that user without a second name, -1 for anything else."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=parts)
    except OSError:
        return -1
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid == uid and status.st_nlink == 1:
        return fd
    os.close(fd)
    return -1
