"""Keeping what a command prints in constant memory: its head, its tail, and a file with the rest."""

from __future__ import annotations

import codecs
import os
from typing import Any

FILE_MAX = 64 * 1024 * 1024
"""Bytes of one command's output that are kept in its file at most."""

FOLDER_MAX = 256 * 1024 * 1024
"""Bytes of all such files at most: the oldest make room."""


class Capture:
    """The output of one command. Up to `cap` bytes are shown whole, more only as head and tail."""

    def __init__(self, cap: int, path: str) -> None:
        cap = max(cap, 2)
        self._head_max = cap // 2
        self._tail_max = cap - cap // 2
        self._cap = cap
        self._path = path
        self._held = bytearray()
        self._tail = bytearray()
        self._file = -1
        self._saved = 0
        self._problem = ""
        self.total = 0

    def add(self, data: bytes) -> None:
        """More output."""
        self.total += len(data)
        if self.total <= self._cap:
            self._held += data
            return
        if not self._tail:
            data = bytes(self._held) + data
            self._open()
            self._held = bytearray(data[: self._head_max])
        self._save(data)
        self._tail += data[-self._tail_max :]
        del self._tail[: -self._tail_max]

    def _open(self) -> None:
        try:
            _make_room(os.path.dirname(self._path))
            if os.path.lexists(self._path):
                os.unlink(self._path)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self._problem = f"it could not be kept in a file: {error.strerror}"

    def _save(self, data: bytes) -> None:
        if self._file < 0:
            return
        data = data[: FILE_MAX - self._saved]
        try:
            while data:
                written = os.write(self._file, data)
                self._saved += written
                data = data[written:]
        except OSError as error:
            self._problem = f"its file holds the first {self._saved} bytes only: {error.strerror}"
            self._shut()

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def result(self) -> dict[str, Any]:
        """The fields of the result that speak of output. Ends the capture."""
        self._shut()
        if self.total <= self._cap:
            return {"output": self._held.decode("utf-8", "replace"), "bytes_total": self.total}
        if not self._problem and self._saved < self.total:
            self._problem = f"its file holds the first {self._saved} bytes only"
        cut = self.total - len(self._held) - len(self._tail)
        problem = f"; {self._problem}" if self._problem else ""
        middle = f"\n[... {cut} bytes left out{problem} ...]\n"
        return {
            "output": _front(bytes(self._held)) + middle + _back(bytes(self._tail)),
            "bytes_total": self.total,
            "truncated": True,
            "output_path": self._path if self._saved else "",
        }


def _front(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _back(data: bytes) -> str:
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:].decode("utf-8", "replace")


def _make_room(folder: str) -> None:
    with os.scandir(folder) as found:
        kept = [
            (entry.stat(follow_symlinks=False), entry.path) for entry in found if entry.is_file(follow_symlinks=False)
        ]
    kept.sort(key=lambda item: item[0].st_mtime_ns, reverse=True)
    total = FILE_MAX
    for status, path in kept:
        total += status.st_size
        if total > FOLDER_MAX:
            os.unlink(path)
