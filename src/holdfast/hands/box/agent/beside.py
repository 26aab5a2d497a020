"""Helpers of a running command: its input, the expected line of output, and its health check.

Each is a part of the runner's loop: `waits` names the descriptors it waits on, `due` when it must run even without
input, and `look` lets it work. Results are returned as notes for the supervisor.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from holdfast.hands.box.wire import Message

MATCH_S = 0.25
"""Processor seconds that a pattern may take on one line; the search is given up after that."""

LINE_BYTES = 4096
"""Bytes of a line that a pattern is matched against."""

TOLD_MAX = 2000
"""Characters of a line, or of a health command's output, that are reported."""

BACKLOG_MAX = 1 << 20
"""Bytes that may queue for a slow pattern. The command's output is read no faster then."""

LAG_S = 10.0
"""Seconds in total that a slow pattern may delay a command."""

PROBE_S = 5.0
"""Seconds that one run of a health command may take."""

READY_S = 60.0
"""Default for the seconds that a service may take to become ready."""

FINISH_S = 2.0
"""Seconds that the search for a line may continue after its command has ended."""


class Feed:
    """Input for a command, with a buffer."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._left = bytearray()
        self._closing = False
        self._taken = 0

    def give(self, data: bytes, *, close: bool) -> Message | None:
        """Add input; with `close` it is the last."""
        self._left += data
        self._closing = self._closing or close
        return self.look()

    @property
    def waits(self) -> dict[int, int]:
        """Return the pipe while something is left to write."""
        return {self._fd: select.POLLOUT} if self._fd >= 0 and self._left else {}

    def look(self) -> Message | None:
        """Write as much as the command accepts now. A note reports the total bytes it has accepted."""
        before = self._taken
        if self._fd < 0:
            self._taken += len(self._left)
            self._left.clear()
        while self._left:
            try:
                sent = os.write(self._fd, self._left[:65536])
            except BlockingIOError:
                break
            except OSError:
                sent = len(self._left)  # the command closed its end: the rest stays unread
                self._closing = True
            self._taken += sent
            del self._left[:sent]
        if self._closing and not self._left and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            return {"taken": self._taken}
        return {"taken": self._taken} if self._taken > before else None


class Lines:
    """Search for the first line that a pattern matches, in its own process with bounded cost."""

    def __init__(self, pattern: str, fork: Callable[[], int]) -> None:
        source, self._to = os.pipe2(os.O_CLOEXEC)
        self._verdict, verdict = os.pipe2(os.O_CLOEXEC)
        self.pid = fork()
        if self.pid == 0:
            _search(pattern, source, verdict)
        os.close(source)
        os.close(verdict)
        os.set_blocking(self._to, False)
        os.set_blocking(self._verdict, False)
        self._left = bytearray()
        self._said = b""
        self._finishing = False
        self._full_since: float | None = None
        self._lagged_s = 0.0

    def add(self, data: bytes) -> None:
        """Add output to search."""
        if self._to >= 0:
            self._left += data
            self._write()

    @property
    def full(self) -> bool:
        """True while no more output should be read."""
        return len(self._left) >= BACKLOG_MAX

    @property
    def waits(self) -> dict[int, int]:
        """Return the pipe for its answer, and the pipe to it while something is left to write."""
        out = {self._verdict: select.POLLIN} if self._verdict >= 0 else {}
        if self._to >= 0 and self._left:
            out[self._to] = select.POLLOUT
        return out

    def _write(self) -> None:
        while self._left and self._to >= 0:
            try:
                del self._left[: os.write(self._to, self._left[:65536])]
            except BlockingIOError:
                return
            except OSError:
                self._shut()
        if self._finishing and not self._left:
            self._shut()

    def _shut(self) -> None:
        self._left.clear()
        if self._to >= 0:
            os.close(self._to)
            self._to = -1

    def look(self) -> Message | None:
        """Continue. A note is the answer: the line, or the reason that there will be none."""
        self._write()
        if self._verdict < 0:
            return None
        if late := self._lag():
            return late
        try:
            data = os.read(self._verdict, 65536)
        except BlockingIOError:
            return None
        self._said += data
        if data:
            return None
        os.close(self._verdict)
        self._verdict = -1
        self._shut()
        if self._said:
            note: Message = json.loads(self._said)
            return note or None
        return {"problem": f"the pattern took longer than {MATCH_S} s on one line, so it is looked for no more"}

    def _lag(self) -> Message | None:
        """Give up if the search delayed the command for too long."""
        now = time.monotonic()
        if self._full_since is not None:
            self._lagged_s += now - self._full_since
        self._full_since = now if self.full else None
        if self._lagged_s <= LAG_S:
            return None
        os.close(self._verdict)
        self._verdict = -1
        self._shut()
        return {"problem": "output comes faster than the pattern can be tried on it, so it is looked for no more"}

    def finish(self) -> Message | None:
        """Search the remaining output after the command has ended."""
        self._finishing = True
        end = time.monotonic() + FINISH_S
        note = self.look()
        while note is None and self._verdict >= 0 and time.monotonic() < end:
            poll = select.poll()
            for fd, events in self.waits.items():
                poll.register(fd, events)
            poll.poll(max(0.0, end - time.monotonic()) * 1000 + 1)
            note = self.look()
        return note


def _search(pattern: str, source: int, verdict: int) -> None:
    """In its own process: read lines, report the match, exit. A timer that is not reset ends it."""
    try:
        low, high = sorted((source, verdict))
        for first, end in ((3, low), (low + 1, high), (high + 1, 1024)):
            os.closerange(first, end)  # drop the runner's descriptors: other processes wait for them to close
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        os.write(verdict, json.dumps(_found(pattern, source)).encode())
    except BaseException as error:
        os.write(verdict, json.dumps({"problem": f"the line cannot be looked for: {error}"[:TOLD_MAX]}).encode())
    finally:
        os._exit(0)


def _found(pattern: str, source: int) -> Message:
    signal.setitimer(signal.ITIMER_PROF, MATCH_S * 4)
    try:
        wanted = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return {"problem": f"{pattern!r} is no regular expression: {error}"[:TOLD_MAX]}
    rest = b""
    while True:
        signal.setitimer(signal.ITIMER_PROF, 0)
        data = os.read(source, 65536)
        *lines, rest = (rest + data).split(b"\n")
        if not data:
            lines = [rest] if rest else []
        for line in lines:
            text = line[:LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
            signal.setitimer(signal.ITIMER_PROF, MATCH_S)
            if wanted.search(text):
                return {"line": text[:TOLD_MAX]}
        if not data:
            return {}
        rest = rest[: LINE_BYTES + 1]


class Health:
    """A command that runs repeatedly until it succeeds or the time is up."""

    def __init__(self, command: str, ready_s: float, begin: Callable[[str, int], int]) -> None:
        self._command = command
        self._begin = begin
        self._end = time.monotonic() + ready_s
        self._pause_s = 0.1
        self._next = time.monotonic()
        self._pid = 0
        self._out = -1
        self._said = ""
        self.status: int | None = None
        self.over = False

    @property
    def waits(self) -> dict[int, int]:
        """Return nothing: the end of its child wakes the loop."""
        return {}

    @property
    def pid(self) -> int:
        """The process that runs the command now, 0 if none does."""
        return self._pid

    @property
    def due(self) -> float:
        """Return the next time at which `look` must run."""
        return math.inf if self.over else min(self._next, self._end)

    def later(self, seconds: float) -> None:
        """Shift the times by the length of a pause."""
        self._end += seconds
        self._next += seconds

    def look(self) -> Message | None:
        """Continue. A note reports the service's readiness once it is known."""
        now = time.monotonic()
        if self.over:
            return None
        if self._pid and (self.status is not None or now >= self._next):
            if self.status is not None and os.waitstatus_to_exitcode(self.status) == 0:
                self.stop()
                return {"ready": "yes"}
            self._collect()
            self._next = now + self._pause_s
            self._pause_s = min(1.0, self._pause_s * 1.5)
        if now >= self._end:
            self.stop()
            said = f"; its health command said: {self._said}" if self._said else ""
            return {"ready": "no", "problem": f"it was not ready in time{said}"}
        if not self._pid and now >= self._next:
            self._run(now)
        return None

    def _run(self, now: float) -> None:
        self._out, out = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.status = None
        try:
            self._pid = self._begin(self._command, out)
        except OSError as error:
            self._said = f"it could not be started: {error.strerror}"
        finally:
            os.close(out)
        self._next = now + (PROBE_S if self._pid else self._pause_s)

    def _collect(self) -> None:
        """Read its output, and end what is left of it."""
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except OSError:
            pass
        try:
            self._said = os.read(self._out, 65536).decode("utf-8", "replace").strip()[-TOLD_MAX:] or self._said
        except OSError:
            self._said = "nothing; it did not end in time"
        os.close(self._out)
        self._pid, self._out = 0, -1

    def stop(self) -> None:
        """Stop running the command."""
        if self._pid:
            self._collect()
        self.over = True


Part = Feed | Lines | Health
"""Any helper of a command."""


def input_of(message: dict[str, Any]) -> tuple[bytes, bool]:
    """Return the bytes of an input message, and True if they are the last."""
    return base64.b64decode(message["data"]), bool(message["close"])
