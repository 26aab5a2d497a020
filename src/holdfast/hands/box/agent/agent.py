"""The hands' agent: runs inside the sandbox, receives calls on its standard input, and runs the tools.

Every call runs in its own child process, so neither a slow pattern nor a runaway command blocks the agent. If it is the
first process of its namespace, no command can kill or stop it; its memory and descriptors are closed to commands in any
case. It ends when the supervisor does.
"""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from holdfast.hands.box import processes
from holdfast.hands.box.agent import archive, bridge, files, output, runner
from holdfast.hands.box.agent.output import FILE_MAX, RECENT_MAX, Capture, Keep
from holdfast.hands.box.agent.text import Refusal
from holdfast.hands.box.processes import Pause
from holdfast.hands.box.wire import Channel, Message, encode

OVERTIME_S = 20.0
"""Seconds that a call's child may take to end the call after its time limit or after it was told to stop."""

HEED_S = 0.25
"""Seconds between checks that the child is doing so: a command can stop it."""

LOOK_S = 600.0
"""Longest sleep in seconds: the kernel does not accept a timeout of several days."""

COMMANDS = ("bash", "job", "service")
"""Tools whose calls run a command, in a child that ends all processes the command started."""

KEEP_MAX = 64 << 20
"""Default for the kept bytes of a job's or service's output: a quarter of them from its beginning."""


class Work:
    """One child process that runs one step of a call."""

    def __init__(self, pid: int, link: Channel, message: Message, deadline: float) -> None:
        self.pid = pid
        self.link = link
        self.call = str(message["call"])
        self.step = str(message["op"])
        self.deadline = self.patience = deadline
        self.sweeps = self.step == "run" and message["request"]["tool"] in COMMANDS
        self.why = ""
        self.answer: Message | None = None


class Agent:
    """The main loop: messages from the supervisor, answers from children, dead children, deadlines."""

    def __init__(self, control: Channel) -> None:
        self._control = control
        self._work: dict[int, Work] = {}
        self._place: dict[str, Any] = {}
        self._bridge = bridge.Keeper(None)
        self._pause = Pause()
        self._poll = select.poll()
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(control.fd, select.POLLIN)

    def serve(self) -> None:
        """Run until the supervisor is gone; then end every process started here first."""
        while True:
            now = time.monotonic()
            self._overdue(now)
            until = min((work.deadline for work in self._work.values()), default=math.inf)
            for channel in [self._control, *(work.link for work in self._work.values())]:
                self._poll.modify(channel.fd, select.POLLIN | (select.POLLOUT if channel.wants_write else 0))
            for fd, _ in self._poll.poll(min(max(0.0, until - now), LOOK_S) * 1000 + 1):
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
        match message["op"]:
            case "setup":
                self._setup(message)
            case "kill":
                for work in self._at(message["call"]):
                    self._stop(work, "stop")
            case "input":
                for work in self._at(message["call"]):
                    work.link.send({"input": message})
            case "piece":
                for work in self._at(message["call"]):
                    work.link.send(message)
            case "pause":
                self._control.send({"ev": "paused", "done": self._pause.begin(self._bridge.pids)})
            case "resume":
                self._resume()
            case _:
                self._begin(message)

    def _at(self, call: str) -> list[Work]:
        """Return the children that work on that call."""
        return [work for work in self._work.values() if work.call == call]

    def _resume(self) -> None:
        """Resume all processes, with the time they had left."""
        if self._pause.since is not None:
            late_s = time.monotonic() - self._pause.since
            for work in self._work.values():
                work.deadline += late_s
                work.patience += late_s
                if work.sweeps:
                    work.link.send({"later": late_s})
            self._pause.end()
        self._control.send({"ev": "resumed"})

    def _setup(self, message: Message) -> None:
        environment = {**os.environ, **message["env"], "PWD": message["root"]}
        self._place = {**message, "env": environment}
        os.chdir(message["root"])
        os.umask(0o022)
        first = os.getpid() == 1
        if not first:
            processes.become_subreaper()
        if not os.access(message["output"], os.W_OK):
            raise OSError(f"the output folder {message['output']} cannot be written")
        self._bridge = bridge.Keeper(message.get("network"))
        self._control.send({"ev": "hello", "pid": os.getpid(), "uid": os.getuid(), "first": first})

    def _begin(self, message: Message) -> None:
        mine, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            theirs.close()
            mine.close()
            self._refuse(message)
            return
        if pid == 0:
            self._child(theirs.detach(), message)
        theirs.close()
        link = Channel(mine.detach())
        work = Work(pid, link, message, time.monotonic() + lasts(message))
        if work.sweeps:
            work.deadline += HEED_S
            work.patience += OVERTIME_S
        self._work[link.fd] = work
        self._poll.register(link.fd, select.POLLIN)
        self._control.send({"ev": "began", "call": work.call, "pid": pid})

    def _child(self, link: int, message: Message) -> None:
        """In the child: run the step, report its outcome, exit."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            for work in self._work.values():
                work.link.close()
            if message["op"] != "run" or message["request"]["tool"] not in COMMANDS:
                processes.die_with_parent(signal.SIGKILL)
            answer = do(message, self._place, link)
            os.set_blocking(link, True)
            with open(link, "wb", closefd=False) as out:
                out.write(encode(answer))
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(0)

    def _refuse(self, message: Message) -> None:
        """Refuse a call: the process limit is reached."""
        told = "[not run: no process could be started for it, since other calls here have as many as are allowed]"
        result = {"ok": False, "output": told, "bytes_total": len(told), "limit": "processes"}
        event = "prepared" if message["op"] == "prepare" else "done"
        self._control.send({"ev": event, "call": message["call"], "result": result})

    def _stop(self, work: Work, why: str) -> None:
        """End a step early. A command's own child ends its tree first; any other is killed."""
        work.why = work.why or why
        try:
            self._pause.free(work.pid)
            if work.sweeps and why == "stop":
                work.link.send({"stop": True})
                now = time.monotonic()
                work.deadline = min(work.deadline, now + HEED_S)
                work.patience = min(work.patience, now + OVERTIME_S)
            else:
                os.kill(work.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _overdue(self, now: float) -> None:
        if self._pause.since is not None:
            return
        for work in self._work.values():
            if now < work.deadline:
                continue
            if work.sweeps and now < work.patience and not _is_stopped(work.pid):
                work.deadline = now + HEED_S
            else:
                work.deadline = now + OVERTIME_S
                self._stop(work, "timeout")

    def _answer(self, fd: int) -> None:
        work = self._work[fd]
        work.link.flush()
        for message in work.link.receive():
            if "note" in message:
                self._control.send({"ev": "note", "call": work.call, **message["note"]})
            elif "piece" in message:
                self._control.send({"ev": "piece", "call": work.call, **message["piece"]})
            else:
                work.answer = message
        if not work.link.closed:
            return
        self._poll.unregister(fd)
        del self._work[fd]
        work.link.close()
        if work.answer is None:
            # A child died before it finished: its processes are now ours; end them.
            spare = self._bridge.pids | {work.pid for work in self._work.values()}
            if processes.sweep(self._reap, spare) is None:
                os._exit(70)
            work.answer = {"result": _cut_short(work.why)}
        self._control.send({"ev": "prepared" if work.step == "prepare" else "done", "call": work.call, **work.answer})

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
        """End after the supervisor is gone. The first process of a namespace takes all others with it."""
        if os.getpid() != 1:
            processes.sweep(self._reap, limit_s=5.0)


def do(message: Message, place: dict[str, Any], link: int) -> Message:
    """Run one step of one call, in its own child process."""
    if message["op"] in archive.STEPS:
        runner.limit(place["limits"])
        return {"result": archive.move(message["op"], message["path"], place, link)}
    request = message["request"]
    tool, given, cap = request["tool"], request["input"], request["output_cap"]
    began = time.monotonic()
    try:
        if message["op"] == "prepare":
            return {"expect": files.prepare(tool, given, place, request["seen"])}
        if tool in COMMANDS:
            return {"result": _bash(message, place, link)}
        runner.limit(place["limits"])
        simple: dict[str, Callable[[], dict[str, Any]]] = {
            "read": lambda: files.read(given, place, cap),
            "glob": lambda: files.glob(given, place, cap),
            "grep": lambda: files.grep(given, place, cap),
            "web_fetch": lambda: _web().fetch(given, place, cap),
            "web_search": lambda: _web().search(given, place, cap),
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


def _web() -> ModuleType:
    """Return the web tools. They are loaded at their first use: they take as long as the rest of the agent."""
    from holdfast.hands.box.agent import web

    return web


def _bash(message: Message, place: dict[str, Any], link: int) -> dict[str, Any]:
    request = message["request"]
    command = request["input"].get("command")
    if not command:
        return {"ok": True, "output": "Each command already runs in a new shell; there is nothing to restart."}
    if "\0" in command:
        raise Refusal("the command holds a zero byte")
    path = os.path.join(place["output"], output.file_name(message["call"]))
    first, recent = FILE_MAX, RECENT_MAX
    if request["tool"] != "bash":
        most = int(request["input"].get("keep_bytes") or KEEP_MAX)
        first, recent = most // 4, most - most // 4
    capture = Capture(request["output_cap"], path, Keep(path, first, recent))
    return runner.Runner(request["input"], place, link, capture).run(lasts(message))


def lasts(message: Message) -> float:
    """Return a step's time limit in seconds; a service and a tar have none here."""
    if message["op"] in archive.STEPS or message["request"]["tool"] == "service":
        return math.inf
    return float(message["request"]["timeout_s"])


def _is_stopped(pid: int) -> bool:
    """Return True if that process is stopped."""
    entry = processes.entry_of(pid)
    return entry is not None and entry.state in "Tt"


def _cut_short(why: str) -> dict[str, Any]:
    told = {
        "timeout": "[ended at its time limit before it had an answer]",
        "stop": "[stopped before it had an answer]",
    }.get(why, "[the process that ran this call was ended from inside; what it had started was ended too]")
    return {"ok": False, "output": told, "timed_out": why == "timeout", "cancelled": why == "stop"}


def main() -> None:
    """Serve the supervisor, which is connected to standard input."""
    processes.hide_memory()
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
