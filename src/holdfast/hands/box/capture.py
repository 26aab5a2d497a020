"""Keeping what a command prints in constant memory: its head, its tail, and files with the rest."""

from __future__ import annotations

import codecs
import os
from typing import Any

from holdfast.hands.box.keep import Keep, make_room


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
        """More output."""
        self.total += len(data)
        self._keep.add(data)
        if self.total <= self._cap:
            self._held += data
            return
        if not self._tail:
            data = bytes(self._held) + data
            self._held = bytearray(data[: self._head_max])
            self._stay()
        self._tail += data[-self._tail_max :]
        del self._tail[: -self._tail_max]

    def _stay(self) -> None:
        """The file will stay when the command has ended: older ones make room for it."""
        try:
            make_room(os.path.dirname(self._path))
        except OSError:
            pass

    def result(self) -> dict[str, Any]:
        """The fields of the result that speak of output. Ends the capture."""
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
        return {
            "output": _front(bytes(self._held)) + middle + _back(bytes(self._tail)),
            "bytes_total": self.total,
            "truncated": True,
            "output_path": self._path if self._keep.saved else "",
        }


def _front(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def _back(data: bytes) -> str:
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:].decode("utf-8", "replace")
