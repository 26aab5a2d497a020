"""The hands' agent: runs inside the sandbox, takes calls over its standard input, runs the tools.

Every call runs in a child of its own, so neither a slow pattern nor a runaway command holds the
agent up. Where it is the first process of its namespace no command can kill or stop it; its memory
and descriptors are closed to commands either way. It ends when the supervisor does.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from holdfast.hands.box import bridge, files, kernel, runner, search, tree
from holdfast.hands.box.capture import Capture
from holdfast.hands.box.text import Refusal
from holdfast.hands.box.wire import Channel, Message, encode

OVERTIME_S = 20.0
"""How long after its time limit a call's own child may take to end it."""


class Work:
    """One child at work on one step of a call."""

    def __init__(self, pid: int, link: Channel, message: Message, deadline: float) -> None:
        self.pid = pid
        self.link = link
        self.call = str(message["call"])
        self.step = str(message["op"])
        self.deadline = deadline
        self.sweeps = self.step == "run" and message["request"]["tool"] == "bash"
        self.why = ""
        self.answer: Message | None = None


class Agent:
    """The loop: messages from the supervisor, answers from children, dead children, deadlines."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._work: dict[int, Work] = {}
        self._place: dict[str, Any] = {}
        self._bridge = bridge.Keeper(None)
        self._poll = select.poll()
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(control.fd, select.POLLIN)

    def serve(self) -> None:
        """Until the supervisor is gone; then everything started here ends first."""
        while True:
            now = time.monotonic()
            self._overdue(now)
            until = min((work.deadline for work in self._work.values()), default=now + 3600)
            writing = select.POLLOUT if self._control.wants_write else 0
            self._poll.modify(self._control.fd, select.POLLIN | writing)
            for fd, _ in self._poll.poll(max(0.0, until - now) * 1000 + 1):
                if fd == self._control.fd:
                    self._control.flush()
                    for message in self._control.receive():
                        self._take(message)
                elif fd == self._wake:
                    os.read(self._wake, 4096)
                    self._reap()
                    self._bridge.tend()
                else:
                    self._answer(fd)
            if self._control.closed:
                self._end()
                return

    def _take(self, message: Message) -> None:
        if message["op"] == "setup":
            self._setup(message)
        elif message["op"] == "kill":
            for work in self._work.values():
                if work.call == message["call"]:
                    self._stop(work, "stop")
        else:
            self._begin(message)

    def _setup(self, message: Message) -> None:
        environment = {**os.environ, **message["env"], "PWD": message["root"]}
        self._place = {**message, "env": environment}
        os.chdir(message["root"])
        os.umask(0o022)
        first = os.getpid() == 1
        if not first:
            kernel.become_subreaper()
        if not os.access(message["output"], os.W_OK):
            raise OSError(f"the output folder {message['output']} cannot be written")
        self._bridge = bridge.Keeper(message.get("network"))
        self._control.send({"ev": "hello", "pid": os.getpid(), "uid": os.getuid(), "first": first})

    def _begin(self, message: Message) -> None:
        mine, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            self._child(theirs.detach(), message)
        theirs.close()
        link = Channel(mine.detach())
        work = Work(pid, link, message, time.monotonic() + message["request"]["timeout_s"])
        if work.sweeps:
            work.deadline += OVERTIME_S
        self._work[link.fd] = work
        self._poll.register(link.fd, select.POLLIN)

    def _child(self, link: int, message: Message) -> None:
        """In the child: do the step, say how it went, end."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            for work in self._work.values():
                work.link.close()
            if message["op"] == "prepare" or message["request"]["tool"] != "bash":
                kernel.die_with_parent(signal.SIGKILL)
            answer = do(message, self._place, link)
            os.set_blocking(link, True)
            with open(link, "wb", closefd=False) as out:
                out.write(encode(answer))
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(0)

    def _stop(self, work: Work, why: str) -> None:
        """End a step early. A command's own child ends its tree first; any other is killed."""
        work.why = work.why or why
        try:
            if work.sweeps and why == "stop":
                work.link.send({"stop": True})
            else:
                os.kill(work.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _overdue(self, now: float) -> None:
        for work in self._work.values():
            if now >= work.deadline and work.why != "timeout":
                work.deadline = now + OVERTIME_S
                work.why = "timeout"
                self._stop(work, "timeout")

    def _answer(self, fd: int) -> None:
        work = self._work[fd]
        messages = work.link.receive()
        if messages:
            work.answer = messages[0]
        if not work.link.closed:
            return
        self._poll.unregister(fd)
        del self._work[fd]
        work.link.close()
        if work.answer is None:
            self._strays()
            work.answer = {"result": _cut_short(work.why)}
        self._control.send({"ev": "prepared" if work.step == "prepare" else "done", "call": work.call, **work.answer})

    def _strays(self) -> None:
        """A child died with its work undone: what it had started is ours now, and ends."""
        spare = self._bridge.pids | {work.pid for work in self._work.values()}
        if tree.sweep(self._reap, spare) is None:
            os._exit(70)

    def _reap(self) -> bool:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._bridge.reaped(pid)

    def _end(self) -> None:
        """The supervisor is gone. The first process of a namespace takes all others with it."""
        if os.getpid() != 1:
            tree.sweep(self._reap, limit_s=5.0)


def do(message: Message, place: dict[str, Any], link: int) -> Message:
    """One step of one call, in a child of its own."""
    request = message["request"]
    tool, given, cap = request["tool"], request["input"], request["output_cap"]
    began = time.monotonic()
    try:
        if message["op"] == "prepare":
            return {"expect": files.prepare(tool, given, place, request["seen"])}
        if tool == "bash":
            return {"result": _bash(message, place, link)}
        runner.limit(place["limits"])
        simple: dict[str, Callable[[], dict[str, Any]]] = {
            "read": lambda: files.read(given, place, cap),
            "glob": lambda: search.glob(given, place, cap),
            "grep": lambda: search.grep(given, place, cap),
        }
        step = simple.get(tool) or (lambda: files.commit(tool, given, place, message["expect"]))
        result = step()
    except Refusal as refusal:
        result = {"ok": False, "output": str(refusal)}
    except (OSError, MemoryError, RecursionError, KeyError, TypeError, ValueError) as error:
        result = {"ok": False, "output": f"{tool} failed: {type(error).__name__}: {error}"}
    result.setdefault("bytes_total", len(result["output"].encode("utf-8", "replace")))
    result["duration_ms"] = round((time.monotonic() - began) * 1000, 3)
    return {"result": result}


def _bash(message: Message, place: dict[str, Any], link: int) -> dict[str, Any]:
    request = message["request"]
    command = request["input"].get("command")
    if not command:
        return {"ok": True, "output": "Each command already runs in a new shell; there is nothing to restart."}
    if "\0" in command:
        raise Refusal("the command holds a zero byte")
    name = "".join(char if char.isalnum() or char in ".-_" else "_" for char in message["call"])
    capture = Capture(request["output_cap"], os.path.join(place["output"], f"{name}.txt"))
    return runner.Runner(command, place, link, capture).run(request["timeout_s"])


def _cut_short(why: str) -> dict[str, Any]:
    told = {
        "timeout": "[ended at its time limit before it had an answer]",
        "stop": "[stopped before it had an answer]",
    }.get(why, "[the process that ran this call was ended from inside; what it had started was ended too]")
    return {"ok": False, "output": told, "timed_out": why == "timeout", "cancelled": why == "stop"}


def main() -> None:
    """Standard input is the conversation with the supervisor."""
    kernel.hide_memory()
    control = os.dup(0)
    os.set_inheritable(control, False)
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)
    if control != 3:
        os.dup2(control, 3, inheritable=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    os.closerange(4, max(1024, min(soft, 65536)))
    try:
        Agent(Channel(3)).serve()
    except Exception as error:
        os.write(2, f"agent: {type(error).__name__}: {error}\n".encode())
        sys.exit(70)
