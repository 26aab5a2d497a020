"""One command: started in its own process session, watched, and ended whole.

The runner is a process of its own per command and the subreaper of all that the command leaves
behind. It ends by timeout, when told to, when whoever told it is gone, or when the command exits.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import time
from typing import Any

from holdfast.hands.box import kernel, tree
from holdfast.hands.box.capture import Capture

DRAIN_S = 0.25
"""How long what a command left running may still print after its shell has exited."""

LEAVE_S = 0.01
"""How long those that can print no more may take to leave by themselves."""

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
    """Apply resource limits to this process and what it starts; never above what it may have."""
    for name, value in limits.items():
        kind = _LIMITS[name]
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))


class Runner:
    """One run of one command. `link` is readable when the command must end."""

    def __init__(self, command: str, place: dict[str, Any], link: int, capture: Capture) -> None:
        self._command = command
        self._place = place
        self._link = link
        self._capture = capture
        self._leader = 0
        self._status: int | None = None
        self._orphans = True
        self._out = -1
        self._wake = -1

    def run(self, timeout_s: float) -> dict[str, Any]:
        """Run it to its end and say how it ended."""
        kernel.become_subreaper()
        began = time.monotonic()
        self._start()
        why = self._watch(began + timeout_s)
        killed = tree.sweep(self._reap)
        self._drain()
        fields = self._capture.result()
        code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        if killed is None:
            fields["output"] += "\n[some processes of this command could not be ended]"
        return {
            **fields,
            "ok": why == "exit" and code == 0,
            "exit_code": code if code is not None and code >= 0 and why == "exit" else None,
            "signal": -code if code is not None and code < 0 else None,
            "timed_out": why == "timeout",
            "cancelled": why == "stop",
            "killed": len((killed or set()) - {self._leader}),
            "duration_ms": round((time.monotonic() - began) * 1000, 3),
        }

    def _start(self) -> None:
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._out, out_in = os.pipe2(os.O_CLOEXEC)
        _widen(self._out)
        self._leader = os.fork()
        if self._leader == 0:
            self._become(out_in)
        os.close(out_in)
        os.set_blocking(self._out, False)

    def _become(self, out: int) -> None:
        """In the child: become the command, or say why not."""
        try:
            os.setsid()
            os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
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
            os.execve("/bin/bash", ["bash", "-c", self._command], self._place["env"])
        except OSError as error:
            hint = "; write it to a file and run that" if error.errno == 7 else ""
            os.write(2, f"the command could not be started: {error.strerror}{hint}\n".encode())
        except BaseException as error:
            os.write(2, f"the command could not be started: {error}\n".encode())
        finally:
            os._exit(127)

    def _watch(self, deadline: float) -> str:
        """Until the command is over: `exit`, `timeout` or `stop`."""
        poll = select.poll()
        for fd in (self._out, self._wake, self._link):
            poll.register(fd, select.POLLIN)
        drained = deadline
        while True:
            now = time.monotonic()
            exited = self._status is not None
            if exited and (not self._orphans or now >= drained):
                return "exit"
            if now >= deadline:
                return "exit" if exited else "timeout"
            ready = {fd for fd, _ in poll.poll(max(0, min(deadline, drained) - now) * 1000 + 1)}
            if self._out in ready and not self._take():
                poll.unregister(self._out)
                os.close(self._out)
                self._out = -1
                drained = min(drained, time.monotonic() + LEAVE_S) if exited else drained
            if self._link in ready:
                return "exit" if exited else "stop"
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._orphans = self._reap()
                if not exited and self._status is not None:
                    drained = time.monotonic() + (DRAIN_S if self._out >= 0 else LEAVE_S)

    def _take(self) -> bool:
        """Read some output; False at its end."""
        try:
            data = os.read(self._out, _PIPE_SIZE)
        except BlockingIOError:
            return True
        self._capture.add(data)
        return bool(data)

    def _drain(self) -> None:
        """What is still in the pipe. Nobody can write to it any more."""
        while self._out >= 0:
            try:
                data = os.read(self._out, _PIPE_SIZE)
            except BlockingIOError:
                return
            self._capture.add(data)
            if not data:
                return

    def _reap(self) -> bool:
        """Collect the dead; False when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                self._status = status


def _widen(pipe: int) -> None:
    """A larger pipe, when the kernel gives one: fewer turns for much output."""
    try:
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:
        pass
