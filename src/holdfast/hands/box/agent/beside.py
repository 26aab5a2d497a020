"""Helpers of a running command: its input, the expected line of output, and its health check.

Each is a part of the runner's loop: `waits` names the descriptors it waits on, `due` when it must be looked at
although nothing came, `look` lets it go on. What becomes known is returned as a note for the supervisor.
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
"""Processor time that a pattern may take on one line; then it is looked for no more."""

LINE_BYTES = 4096
"""Bytes of a line that a pattern is tried on."""

TOLD_MAX = 2000
"""Characters of a line, or of what a health command said, that are told."""

BACKLOG_MAX = 1 << 20
"""Bytes that may wait for a slow pattern. The command's output is taken no faster then."""

LAG_S = 10.0
"""How long, all in all, a command may be held up by a slow pattern."""

PROBE_S = 5.0
"""How long one run of a health command may take."""

READY_S = 60.0
"""How long a service may take to be ready when nothing else was said."""

FINISH_S = 2.0
"""How long the search for a line may go on after its command has ended."""


class Feed:
    """Input on its way to a command."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._left = bytearray()
        self._closing = False
        self._taken = 0

    def give(self, data: bytes, *, close: bool) -> Message | None:
        """More of it; with `close` the last."""
        self._left += data
        self._closing = self._closing or close
        return self.look()

    @property
    def waits(self) -> dict[int, int]:
        """The pipe, while something is left to write."""
        return {self._fd: select.POLLOUT} if self._fd >= 0 and self._left else {}

    def look(self) -> Message | None:
        """Write what the command takes now. A note says how much it has taken altogether."""
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
                sent = len(self._left)  # it closed its end: the rest stays unread
                self._closing = True
            self._taken += sent
            del self._left[:sent]
        if self._closing and not self._left and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            return {"taken": self._taken}
        return {"taken": self._taken} if self._taken > before else None


class Lines:
    """The search for the first line that a pattern matches, in a process of its own with bounded cost."""

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
        """More output."""
        if self._to >= 0:
            self._left += data
            self._write()

    @property
    def full(self) -> bool:
        """True while no more output should be taken."""
        return len(self._left) >= BACKLOG_MAX

    @property
    def waits(self) -> dict[int, int]:
        """Its answer, and the pipe to it while something is left to write."""
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
        """Go on. A note is the answer: the line, or why there will be none."""
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
        """Give up when the command was held up for too long."""
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
        """The command has ended: search what is left."""
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
    """In a process of its own: read lines, say what was found, end. A timer that is not set back ends it."""
    try:
        low, high = sorted((source, verdict))
        for first, end in ((3, low), (low + 1, high), (high + 1, 1024)):
            os.closerange(first, end)  # none of the runner's: others wait for their ends
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
    """A command that is run again and again until it is well, or time is over."""

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
        """Nothing: its child's end wakes the loop."""
        return {}

    @property
    def pid(self) -> int:
        """The process that runs the command now, 0 when none does."""
        return self._pid

    @property
    def due(self) -> float:
        """When it must be looked at again."""
        return math.inf if self.over else min(self._next, self._end)

    def later(self, seconds: float) -> None:
        """All stood still for that long."""
        self._end += seconds
        self._next += seconds

    def look(self) -> Message | None:
        """Go on. A note says whether the service is ready, when that is known."""
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
        """Take what it said, and end what is left of it."""
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
        """No more runs."""
        if self._pid:
            self._collect()
        self.over = True


Part = Feed | Lines | Health
"""Anything that goes on beside a command."""


def input_of(message: dict[str, Any]) -> tuple[bytes, bool]:
    """The bytes of an input message, and whether they are the last."""
    return base64.b64decode(message["data"]), bool(message["close"])
