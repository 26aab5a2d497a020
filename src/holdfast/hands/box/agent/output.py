"""Output of a command: captured in constant memory, kept in files, and read by position.

The files are in a folder of the sandbox's user, so their content is as untrusted as the output itself: they are opened
without following links, and only as plain files of the folder's owner. The first is `NAME.txt`; later ones have the
position of their first byte in the name: `NAME.POSITION.txt`."""

from __future__ import annotations

import codecs
import fcntl
import os
import stat
from collections import deque
from typing import Any, NamedTuple


class Capture:
    """The output of one command. Up to `cap` bytes are shown whole, more only as head and tail.

    All of it goes to `keep` at once, so that it can be read while the command runs.
    """

    def __init__(self, cap: int, path: str, keep: Keep | None = None) -> None:
        cap = max(cap, 2)
        self._head_max = cap // 2
        self._tail_max = cap - cap // 2
        self._cap = cap
        self._path = path
        self._held = bytearray()
        self._tail = bytearray()
        self._keep = keep or Keep(path)
        self.total = 0

    def add(self, data: bytes) -> None:
        """Add output."""
        self.total += len(data)
        self._keep.add(data)
        if self.total <= self._cap:
            self._held += data
            return
        if not self._tail:
            data = bytes(self._held) + data
            self._held = bytearray(data[: self._head_max])
            try:
                make_room(os.path.dirname(self._path))  # this file will stay: remove older ones to make room
            except OSError:
                pass
        self._tail += data[-self._tail_max :]
        del self._tail[: -self._tail_max]

    def result(self) -> dict[str, Any]:
        """Return the output fields of the result, and end the capture."""
        if self.total <= self._cap:
            text = self._held.decode("utf-8", "replace")
            self._keep.shut(drop=text.encode("utf-8", "replace") == self._held)
            return {"output": text, "bytes_total": self.total}
        self._keep.shut(drop=False)
        problem = self._keep.problem
        if not problem and self._keep.saved < self.total:
            problem = f"its file holds the first {self._keep.saved} bytes only"
        cut = self.total - len(self._held) - len(self._tail)
        problem = f"; {problem}" if problem else ""
        middle = f"\n[... {cut} bytes left out{problem} ...]\n"
        front = codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._held))
        return {
            "output": front + middle + _back(bytes(self._tail)),
            "bytes_total": self.total,
            "truncated": True,
            "output_path": self._path if self._keep.saved else "",
        }


def _back(data: bytes) -> str:
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:].decode("utf-8", "replace")


FILE_MAX = 64 * 1024 * 1024
"""Bytes kept from the beginning of one command's output."""

RECENT_MAX = 8 * 1024 * 1024
"""Bytes kept of the latest output, in addition to the beginning."""

FOLDER_MAX = 256 * 1024 * 1024
"""Maximum bytes of all such files: the oldest are removed first."""

FILES_MAX = 2_000
"""Maximum number of such files."""

_PARTS = 8
"""Number of files that hold the latest output: a new file replaces the oldest."""


class Keep:
    """The output files of one command, `path` and its successors. `saved` is how much of the beginning is kept."""

    def __init__(self, path: str, first_max: int = FILE_MAX, recent_max: int = RECENT_MAX) -> None:
        self._path = path
        self._left = first_max
        self._part = max(1 << 16, recent_max // _PARTS)
        self._later: deque[str] = deque()
        self._open: deque[int] = deque()
        self._position = 0
        self.saved = 0
        self.problem = ""

    def add(self, data: bytes) -> None:
        """Add output."""
        try:
            while data and not self.problem:
                if not self._open or not self._left:
                    self._next()
                written = os.write(self._open[-1], data[: self._left])
                self._left -= written
                self._position += written
                if not self._later:
                    self.saved += written
                data = data[written:]
        except OSError as error:
            self.problem = f"its file holds the first {self.saved} bytes only: {error.strerror}"
            if not self._open:
                self.problem = f"it could not be kept in a file: {error.strerror}"

    def _next(self) -> None:
        """Begin the next file. It stays open and locked, so that other commands do not remove it to make room."""
        path = self._path
        if self._open:
            path, self._left = later_name(self._path, self._position), self._part
            self._later.append(path)
            make_room(os.path.dirname(path))
            if len(self._later) > _PARTS:
                os.unlink(self._later.popleft())
                os.close(self._open[1])
                del self._open[1]
        if os.path.lexists(path):
            os.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
        self._open.append(fd)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def shut(self, *, drop: bool) -> None:
        """End the output. With `drop` nothing is kept."""
        for fd in self._open:
            os.close(fd)
        if drop and self._open:
            try:
                os.unlink(self._path)
            except OSError:
                pass
        self._open.clear()


def make_room(folder: str) -> None:
    """Remove the oldest files until another one fits; never those of a running command."""
    with os.scandir(folder) as found:
        kept = [
            (entry.stat(follow_symlinks=False), entry.path) for entry in found if entry.is_file(follow_symlinks=False)
        ]
    kept.sort(key=lambda item: item[0].st_mtime_ns, reverse=True)
    total = FILE_MAX
    for number, (status, path) in enumerate(kept):
        total += status.st_size
        if (total > FOLDER_MAX or number >= FILES_MAX) and not _in_use(path):
            os.unlink(path)


def _in_use(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


LEAST = 4
"""Minimum size of an answer in bytes: the longest character."""

MOST = 1 << 20
"""Maximum size of an answer in bytes."""


class Piece(NamedTuple):
    """A piece of output. `seq` is the position of its first byte, `next_seq` of the byte after it."""

    seq: int
    text: str
    next_seq: int
    dropped: int
    ended: bool


def file_name(call_id: str) -> str:
    """Return the name of a call's first output file."""
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in call_id) + ".txt"


def later_name(first: str, position: int) -> str:
    """Return the name of the file that continues at that position."""
    return f"{first.removesuffix('.txt')}.{position}.txt"


def cut(data: bytes, seq: int, after: int, max_bytes: int, *, over: bool) -> Piece:
    """Return as much of `data`, which begins at position `seq`, as fits an answer; no character is split.

    `over` means that nothing comes after `data`.
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
    """Return a call's output from `after` on. `result` is None while it runs; `over` means that no more comes."""
    if result is not None:
        piece = from_result(result, after, max_bytes)
        return piece or from_files(folder, call_id, after, max_bytes, int(result.get("bytes_total", 0)))
    piece = from_files(folder, call_id, after, max_bytes, None)
    if over and not piece.text:
        return from_files(folder, call_id, after, max_bytes, piece.seq)
    return piece


def from_result(result: dict[str, Any], after: int, max_bytes: int) -> Piece | None:
    """Return a call's output if its result holds all of it unchanged; else None."""
    total = int(result.get("bytes_total", 0))
    if result.get("truncated") or result.get("output_path"):
        return None
    data = str(result.get("output", "")).encode("utf-8", "replace")
    if len(data) != total:  # bytes that are not text were replaced in it
        return None
    after = min(after, total)
    return cut(data[after:], after, after, max_bytes, over=True)


def from_files(folder: str, call_id: str, after: int, max_bytes: int, total: int | None) -> Piece:
    """Return output from the files from `after` on. `total` is the printed byte count, None if unknown."""
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
    """Return an empty piece: nothing is kept from there on."""
    end = after if total is None else max(after, total)
    return Piece(end, "", end, end - after, total is not None)


def _collect(parts: int, first: str, uid: int, after: int, limit: int) -> tuple[int, bytes, bool]:
    """Return position and bytes of the first kept run from `after` on, and True if more is kept after a gap."""
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
    """Return the files of a call by their positions."""
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
    """Open a plain file of that user with a single name; -1 for anything else."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=parts)
    except OSError:
        return -1
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid == uid and status.st_nlink == 1:
        return fd
    os.close(fd)
    return -1
