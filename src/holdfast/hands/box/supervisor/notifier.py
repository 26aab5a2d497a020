"""The notifier: a process beside the supervisor that runs a command on the host when a job has news.

It is the supervisor's parent, not its child, so neither the command nor its children end with the hands. The supervisor
reports the running jobs and their news over a pipe. If the pipe ends while jobs run, the supervisor was killed: that is
news too. A command that does not exit with 0 is retried, with growing pauses.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NoReturn

from holdfast.hands.box.wire import Channel, Message

TRIES = 10
"""Attempts to run the command for one piece of news."""

FIRST_PAUSE_S = 0.2
"""Seconds of pause before the second attempt; each later pause is twice as long."""

ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
"""The complete environment of the command."""


class Notifier:
    """The supervisor's side of the notifier. Without a descriptor it does nothing."""

    def __init__(self, fd: int) -> None:
        self._to = Channel(fd) if fd >= 0 else None

    def watch(self, call: str) -> None:
        """Record that a job runs now."""
        self._send({"watch": call})

    def over(self, call: str, *, tell: bool) -> None:
        """Report the end of a job; `tell` when no client was waiting for it."""
        self._send({"over": call, "tell": tell})

    def line(self, call: str) -> None:
        """Report that the expected line has come."""
        self._send({"line": call})

    def hush(self) -> None:
        """Stop notifications: these hands were released."""
        self._send({"hush": True})

    def flush(self) -> None:
        """Continue to send messages that did not fit into the pipe."""
        if self._to is not None:
            self._to.flush()

    def _send(self, message: Message) -> None:
        if self._to is not None:
            self._to.send(message)


class _News:
    """One piece of news, until a command succeeds with it."""

    def __init__(self, call: str, kind: str) -> None:
        self.call = call
        self.kind = kind
        self.pid = 0
        self.tries = 0
        self.due = time.monotonic()


class _Teller:
    """The process itself."""

    def __init__(self, source: int, command: list[str]) -> None:
        self._from = Channel(source)
        self._command = command
        self._running: list[str] = []
        self._news: list[_News] = []
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        """Run until the supervisor is gone and all news is delivered."""
        while not self._from.closed or self._news:
            now = time.monotonic()
            for news in list(self._news):
                if not news.pid and now >= news.due:
                    self._run(news)
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            if not self._from.closed:
                poll.register(self._from.fd, select.POLLIN)
            due = [news.due for news in self._news if not news.pid]
            timeout = None if not due else max(0.0, min(due) - now) * 1000 + 1
            for fd, _ in poll.poll(timeout):
                if fd == self._wake:
                    os.read(self._wake, 4096)
                    self._reap()
                else:
                    self._hear()

    def _hear(self) -> None:
        for message in self._from.receive():
            if "watch" in message:
                self._running.append(message["watch"])
            elif "line" in message:
                self._news.append(_News(message["line"], "line"))
            elif "over" in message:
                self._running.remove(message["over"])
                if message["tell"]:
                    self._news.append(_News(message["over"], "exit"))
            else:
                self._running.clear()
                self._news = [news for news in self._news if news.pid]
                for news in list(self._news):
                    news.tries = TRIES
        if self._from.closed:
            self._news += [_News(call, "lost") for call in self._running]
            self._running.clear()

    def _run(self, news: _News) -> None:
        news.tries += 1
        argv = [part.replace("{call}", news.call).replace("{news}", news.kind) for part in self._command]
        try:
            news.pid = os.fork()
        except OSError:
            self._failed(news)
            return
        if news.pid == 0:
            _become(argv)

    def _failed(self, news: _News) -> None:
        news.pid = 0
        news.due = time.monotonic() + FIRST_PAUSE_S * 2 ** (news.tries - 1)
        if news.tries >= TRIES:
            self._news.remove(news)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for news in [news for news in self._news if news.pid == pid]:
                if status == 0:
                    self._news.remove(news)
                else:
                    self._failed(news)


def _become(argv: list[str]) -> NoReturn:
    """In the child: become the command, in its own process session."""
    try:
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir("/")
        os.umask(0o022)
        os.execvpe(argv[0], argv, ENVIRONMENT)
    finally:
        os._exit(127)


def become_notifier(source: int, command: list[str]) -> NoReturn:
    """Become the notifier: close inherited descriptors, and serve."""
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd, inheritable=True)
        source = os.dup2(source, 3, inheritable=False) if source != 3 else source
        os.closerange(4, 1024)
        _Teller(source, command).serve()
    finally:
        os._exit(0)
