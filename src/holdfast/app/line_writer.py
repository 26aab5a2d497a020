"""Output of a long-lived process, written by threads, so that a reader who stops does not stop the process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast.app.call import Call, fitted, write_error
from holdfast.errors import HoldfastError

HELD_MAX = 4_000_000
"""Bytes that wait for a reader; further lines are dropped until there is room."""

END_S = 1.0
"""Time at the end for lines that wait, in seconds."""


class LineWriter:
    """Writes lines to a descriptor. `notice` makes the line that follows dropped ones from their number."""

    def __init__(self, descriptor: int, notice: Callable[[int], str], held_max: int = HELD_MAX) -> None:
        self._descriptor = descriptor
        self._notice = notice
        self._held_max = held_max
        self._held: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._failed: OSError | None = None
        self._changed = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Write a line, or drop it if too much waits for a reader. Raises the error of an earlier write."""
        data = line.encode("utf-8", "backslashreplace") + b"\n"
        with self._changed:
            if self._failed is not None:
                raise write_error(self._failed)
            if self._size + len(data) > self._held_max:
                self._dropped += 1
                return
            self._report()
            self._hold(data)

    def close(self) -> None:
        """Write the waiting lines; give up after `END_S`, since the reader may have stopped."""
        with self._changed:
            self._report()
            self._ends = True
            self._changed.notify()
        self._thread.join(END_S)

    def _report(self) -> None:
        if self._dropped:
            self._hold(self._notice(self._dropped).encode() + b"\n")
            self._dropped = 0

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._held or self._ends)
                if not self._held:
                    return
                data = self._held[0]
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                with self._changed:
                    self._failed = error
                return
            with self._changed:
                self._held.popleft()
                self._size -= len(data)


@contextmanager
def unhindered(call: Call) -> Iterator[None]:
    """Write JSON lines and notes of a call from threads during the block."""
    out = LineWriter(1, lambda number: f'{{"type":"dropped","lines":{number}}}')
    err = LineWriter(2, lambda number: f"({number} lines were dropped here: this output was not read in time)")

    def note(text: str) -> None:
        with suppress(HoldfastError):  # standard error was closed, as `Call.note` allows
            err.put(fitted(text, 2))

    call.out, call.above = out.put, note
    try:
        yield
    finally:
        call.out = call.above = None
        out.close()
        err.close()
