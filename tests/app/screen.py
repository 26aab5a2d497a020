"""A terminal for tests: commands run in a real pty, and what they write is rendered by an emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pyte

from tests.app.terminal import HOLDFAST, in_scratch
from tests.support.waiting import PATIENCE_S

KEYS = {"ctrl-c": b"\x03", "ctrl-z": b"\x1a"}


class Screen(pyte.HistoryScreen):
    """A screen that counts how often it had to wrap a line, because the line was wider."""

    wraps = 0

    def draw(self, data: str) -> None:
        """Show characters."""
        for char in data:
            self.wraps += self.cursor.x == self.columns and pyte.modes.DECAWM in self.mode
            super().draw(char)


class Terminal:
    """One terminal: a pty, the emulator behind it, and each piece that was written to it with its time."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = Screen(columns, rows, history=1_000)
        self._stream = pyte.ByteStream(self.screen)
        self.pieces: list[tuple[float, bytes]] = []
        self._files: list[TextIO] = []
        self.resize(columns, rows)

    def stream(self) -> TextIO:
        """A file that writes to it; closed with it."""
        self._files.append(open(os.dup(self.slave), "w", encoding="utf-8"))
        return self._files[-1]

    def close(self) -> None:
        """Take it away."""
        for file in self._files:
            with suppress(OSError):  # what it could not write it tries to write once more
                file.close()
        for end in (self.master, self.slave):
            if end >= 0:
                os.close(end)
        self.master = self.slave = -1

    def resize(self, columns: int, rows: int) -> None:
        """Another size; whoever has the terminal is told."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def pump(self, wait_s: float = 0.0) -> bool:
        """Render what was written, after waiting so long for it. False at the end."""
        if not select.select([self.master], [], [], wait_s)[0]:
            return True
        try:
            piece = os.read(self.master, 1 << 16)
        except OSError:  # the last one has let go of it
            return False
        self.pieces.append((time.monotonic(), piece))
        self._stream.feed(piece)
        return bool(piece)

    @property
    def written(self) -> bytes:
        """All that was written."""
        return b"".join(piece for _, piece in self.pieces)

    def lines(self) -> list[str]:
        """What stands on the screen, without empty rows at its end."""
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def past(self) -> list[str]:
        """What scrolled out at the top, and the screen."""
        width = self.screen.columns
        history = ["".join(row[column].data for column in range(width)).rstrip() for row in self.screen.history.top]
        return [*history, *self.lines()]

    @property
    def text(self) -> str:
        """The screen as text."""
        return "\n".join(self.lines())

    def type(self, keys: str | bytes) -> None:
        """Press keys, by name or as they are."""
        os.write(self.master, keys if isinstance(keys, bytes) else KEYS.get(keys, keys.encode()))


class Session(Terminal):
    """A command in a terminal of its own."""

    def __init__(
        self,
        *words: str | Path,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = HOLDFAST,
    ) -> None:
        super().__init__(columns, rows)
        environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        environment.pop("NO_COLOR", None) if not env or "NO_COLOR" not in env else None
        argv = [*command, *in_scratch(words)]
        self.pid = os.fork()
        if self.pid == 0:  # nothing but calls of the system until exec
            try:
                os.setsid()
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
                for number in range(3):
                    os.dup2(self.slave, number)
                self.become(argv, environment)
            finally:
                os._exit(127)
        os.close(self.slave)
        self.slave = -1
        self.code: int | None = None

    def become(self, argv: list[str], environment: dict[str, str]) -> None:
        """Run the command in the forked process, which it never leaves."""
        os.execvpe(argv[0], argv, environment)

    def until(self, seen: Callable[[str], bool] | str, timeout_s: float = PATIENCE_S) -> str:
        """Render until the screen shows it; returns the screen as it then is."""
        wanted = seen if callable(seen) else lambda text: seen in text
        end_s = time.monotonic() + timeout_s
        while not wanted(self.text):
            assert time.monotonic() < end_s, f"not in time on the screen:\n{self.text}"
            assert self.pump(0.1), f"it ended before that was on the screen:\n{self.text}"
        return self.text

    def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Render until the command ends; its exit status."""
        end_s = time.monotonic() + timeout_s
        while self.pump(0.1):
            assert time.monotonic() < end_s, f"it goes on and on:\n{self.text}"
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.close()
