"""One command: started in its own process session, watched, and ended with all its processes.

Each command has its own runner process, the subreaper of all that the command leaves behind. The runner ends on a
timeout, on request, when the agent is gone, or when the command exits. Beside the command run its input, the search for
a line, and its health check, see `beside`.
"""

from __future__ import annotations

import fcntl
import math
import os
import resource
import select
import signal
import time
from typing import Any

from holdfast.hands.box import processes
from holdfast.hands.box.agent.beside import READY_S, Feed, Health, Lines, Part, input_of
from holdfast.hands.box.agent.output import Capture
from holdfast.hands.box.wire import Channel, Message

DRAIN_S = 0.25
"""Seconds that processes left running may still print after the command's shell has exited."""

LEAVE_S = 0.01
"""Seconds that processes that cannot print any more may take to exit."""

LOOK_S = 600.0
"""Longest sleep in seconds: the kernel does not accept a timeout of several days."""

_PIPE_SIZE = 1 << 20
_F_SETPIPE_SZ = 1031
_LIMITS = {
    "processes": resource.RLIMIT_NPROC,
    "address_space": resource.RLIMIT_AS,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "core": resource.RLIMIT_CORE,
}


def limit(limits: dict[str, int]) -> None:
    """Apply resource limits to this process and its children; never above the current maximum."""
    for name, value in limits.items():
        kind = _LIMITS[name]
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))


class Runner:
    """One run of one command. `link` carries its input, pauses, and the request to end it."""

    def __init__(self, given: Message, place: dict[str, Any], link: int, capture: Capture) -> None:
        self._given = given
        self._place = place
        self._link = Channel(link)
        self._capture = capture
        self._leader = 0
        self._status: int | None = None
        self._orphans = True
        self._out = -1
        self._wake = -1
        self._deadline = math.inf
        self._drained = math.inf
        self._stopped = False
        self._feed: Feed | None = None
        self._lines: Lines | None = None
        self._health: Health | None = None
        self._aside: set[int] = set()

    def run(self, timeout_s: float) -> dict[str, Any]:
        """Run the command to its end and report how it ended."""
        processes.become_subreaper()
        began = time.monotonic()
        self._deadline = began + timeout_s
        self._start()
        why = self._watch()
        if self._health is not None:
            self._health.stop()
        self._halt()
        killed = processes.sweep(self._reap, frozenset() if self._lines is None else frozenset({self._lines.pid}))
        self._drain()
        if self._lines is not None:
            self._note(self._lines.finish())
            if processes.sweep(self._reap) is None:
                killed = None
        fields = self._capture.result()
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        if killed is None:
            fields["output"] += "\n[some processes of this command could not be ended]"
        os.set_blocking(self._link.fd, True)
        self._link.flush()
        return {
            **fields,
            "ok": why == "exit" and code == 0,
            "exit_code": code if code is not None and code >= 0 and why == "exit" else None,
            "signal": -code if code is not None and code < 0 else None,
            "timed_out": why == "timeout",
            "cancelled": why == "stop",
            "killed": len((killed or set()) - self._aside - {self._leader}),
            "duration_ms": round((time.monotonic() - began) * 1000, 3),
        }

    def _halt(self) -> None:
        """Stop the whole process group of the command at once: a fork bomb would starve the sweep."""
        if self._status is None or self._orphans:
            try:
                os.killpg(self._leader, signal.SIGSTOP)
            except OSError:
                pass  # it ended, or its group is empty

    def _start(self) -> None:
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._out, out_in = os.pipe2(os.O_CLOEXEC)
        _widen(self._out)
        source = -1
        if self._given.get("stdin"):
            source, feed = os.pipe2(os.O_CLOEXEC)
            self._feed = Feed(feed)
        self._leader = self._begin(self._given["command"], out_in, source)
        os.close(out_in)
        if source >= 0:
            os.close(source)
        os.set_blocking(self._out, False)
        if self._given.get("line"):
            try:
                self._lines = Lines(self._given["line"], self._fork)
                self._aside.add(self._lines.pid)
            except OSError as error:
                self._note({"problem": f"the line cannot be looked for: {error.strerror}"})
        if self._given.get("health"):
            ready_s = float(self._given.get("ready_s", READY_S))
            self._health = Health(self._given["health"], ready_s, self._look_after)

    def _begin(self, command: str, out: int, source: int = -1) -> int:
        pid = os.fork()
        if pid == 0:
            self._become(command, out, source)
        return pid

    def _look_after(self, command: str, out: int) -> int:
        pid = self._begin(command, out)
        self._aside.add(pid)
        return pid

    def _fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            limit(self._place["limits"])
        return pid

    def _become(self, command: str, out: int, source: int) -> None:
        """In the child: become the command, or report the error."""
        try:
            os.setsid()
            os.dup2(os.open("/dev/null", os.O_RDONLY) if source < 0 else source, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            for fd in (0, 1, 2):
                os.set_blocking(fd, True)
            os.closerange(3, 1024)
            signal.set_wakeup_fd(-1)
            for number in (
                signal.SIGCHLD,
                signal.SIGPIPE,
                signal.SIGXFSZ,
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGHUP,
            ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.umask(0o022)
            os.chdir(self._place["root"])
            limit(self._place["limits"])
            processes.end_first()  # our memory is writable for a moment; the limits are already set by then
            os.execve("/bin/bash", ["bash", "-c", command], self._place["env"])
        except OSError as error:
            hint = "; write it to a file and run that" if error.errno == 7 else ""
            os.write(2, f"the command could not be started: {error.strerror}{hint}\n".encode())
        except BaseException as error:
            os.write(2, f"the command could not be started: {error}\n".encode())
        finally:
            os._exit(127)

    def _parts(self) -> list[Part]:
        return [part for part in (self._feed, self._lines, self._health) if part is not None]

    def _watch(self) -> str:
        """Wait until the command is over: `exit`, `timeout` or `stop`."""
        while True:
            now = time.monotonic()
            exited = self._status is not None
            if exited and (not self._orphans or now >= min(self._drained, self._deadline)):
                return "exit"
            if self._stopped:
                return "exit" if exited else "stop"
            if now >= self._deadline:
                self._listen()  # after a pause the limit is later
                if now >= self._deadline and not self._stopped:
                    return "timeout"
                continue
            ready = self._poll(now)
            if self._out in ready and not self._take():
                os.close(self._out)
                self._out = -1
                if exited:
                    self._drained = min(self._drained, time.monotonic() + LEAVE_S)
            if self._link.fd in ready:
                self._listen()
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._orphans = self._reap()
                if not exited and self._status is not None:
                    self._drained = time.monotonic() + (DRAIN_S if self._out >= 0 else LEAVE_S)
            for part in self._parts():
                self._note(part.look())

    def _poll(self, now: float) -> set[int]:
        """Wait for an event or for the next due time."""
        poll = select.poll()
        for fd in (self._out, self._wake):
            if fd >= 0 and not (fd == self._out and self._lines is not None and self._lines.full):
                poll.register(fd, select.POLLIN)
        poll.register(self._link.fd, select.POLLIN | (select.POLLOUT if self._link.wants_write else 0))
        for part in self._parts():
            for fd, events in part.waits.items():
                poll.register(fd, events)
        until = min(self._deadline, self._drained)
        if self._health is not None:
            until = min(until, self._health.due)
        return {fd for fd, _ in poll.poll(min(max(0.0, until - now), LOOK_S) * 1000 + 1)}

    def _listen(self) -> None:
        """Handle messages of the agent. When the agent is gone, this process ends too."""
        self._link.flush()
        for message in self._link.receive():
            if "input" in message and self._feed is not None:
                data, close = input_of(message["input"])
                self._note(self._feed.give(data, close=close))
            elif "later" in message:
                self._deadline += message["later"]
                self._drained += message["later"]
                if self._health is not None:
                    self._health.later(message["later"])
            elif "stop" in message:
                self._stopped = True
        self._stopped = self._stopped or self._link.closed

    def _note(self, note: Message | None) -> None:
        """Send a note to the agent."""
        if note:
            self._link.send({"note": note})

    def _take(self) -> bool:
        """Read some output; False at its end."""
        try:
            data = os.read(self._out, _PIPE_SIZE)
        except BlockingIOError:
            return True
        self._capture.add(data)
        if self._lines is not None:
            self._lines.add(data)
        return bool(data)

    def _drain(self) -> None:
        """Read the rest of the pipe, which no process writes to any more."""
        while self._out >= 0:
            before = self._capture.total
            if not self._take() or self._capture.total == before:
                return

    def _reap(self) -> bool:
        """Collect dead children; False if none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                self._status = status
            elif self._health is not None and pid == self._health.pid:
                self._health.status = status


def _widen(pipe: int) -> None:
    """Enlarge the pipe if the kernel allows it: fewer reads for much output."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:
        pass
