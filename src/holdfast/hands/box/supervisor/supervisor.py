"""The supervisor: parent of one sandbox, outside it; keeps its journal and serves its verbs (S9, S10).

It reads a launch (see `hands.launch`), holds its lock file for life, starts the sandbox and waits for the agent's first
message. Then it serves a unix socket, see `verbs`; `calls` has the state of its calls. It ends when it is idle and
unclaimed for a while, at its longest life, when its sandbox is gone, or when released; never for idleness while
anything runs, and never during a call or job that still may run. A service alone prevents the end for idleness, not the
end at its longest life.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import time

from holdfast.hands.box import processes
from holdfast.hands.box.supervisor import cgroups, mounts, spawn, watcher
from holdfast.hands.box.supervisor.calls import Refusal, Register
from holdfast.hands.box.supervisor.journal import Journal, JournalFull
from holdfast.hands.box.supervisor.limits import LOG, Watch
from holdfast.hands.box.supervisor.notifier import Notifier, become_notifier
from holdfast.hands.box.supervisor.verbs import Verbs
from holdfast.hands.box.wire import Channel, Message, WireError, encode
from holdfast.privileges import CAP_KILL, give_up

LOOK_S = 600.0
"""Longest sleep in seconds: the kernel does not accept a timeout of several days."""

_RETRY_S = 0.5


class Supervisor:
    """The state of one incarnation, and its loop."""

    def __init__(self, launch: Message, notifier: Notifier) -> None:
        self._launch = launch
        self._began = time.monotonic()
        self._idle_since = self._began
        self._notifier = notifier
        self._clients: dict[int, Channel] = {}
        self._silent: set[int] = set()
        self._complaints = b""
        self._ending = ""
        self._claimed = False
        self._retired = False
        self._life_end = self._began + launch["life_s"]
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._retire)
        processes.become_subreaper()
        os.umask(0o077)
        folder = launch["folder"]
        self._lock = processes.hold_lock(os.path.join(folder, "lock"))
        self._journal = Journal(os.path.join(folder, "journal"))
        self._journal.write({"t": "open", **launch["opening"], "pid": os.getpid()})
        self._journal.write({"t": "epoch", "epoch": int(launch["epoch"])})
        self._held = [mounts.make_mount_point(place) for place in launch["opening"]["places"]]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(launch["socket"])
        self._listener.listen(64)
        limits = cgroups.make(launch["holding"]["plan"], os.path.join(folder, cgroups.RECORD))
        self._sandbox = spawn.start(launch, limits.doors)
        self._watch = Watch(launch, limits, self._lock)
        self._user = os.getuid()
        os.chdir(folder)
        self._launch = launch = {**launch, "folder": "."}  # the folders above it may be closed from now on
        self._confine()
        self._agent = Channel(self._sandbox.control)
        self._agent.send({"op": "setup", **launch["setup"]})
        self._register = Register(self._journal, self._agent, self._watch, notifier)
        self._verbs = Verbs(launch, self._register, self._agent, release=self._release, refusal=self._no_start)

    def _confine(self) -> None:
        """Give up all privileges except to kill the sandbox's processes: its messages are untrusted."""
        launch = self._launch
        uid, gid = (launch["own_uid"], launch["own_gid"]) if self._user == 0 else (self._user, os.getgid())
        calls = watcher.filter_of(launch)
        give_up(uid=uid, gid=gid, keep=(CAP_KILL,), filter_calls=calls)

    def _retire(self, number: int, frame: object) -> None:
        """Handle SIGTERM: accept no new call, and end after the running ones."""
        self._life_end = self._began
        self._retired = True

    # --- the sandbox ---

    def meet(self) -> str:
        """Wait for the agent's first message. Returns the reason if there is none, empty on success."""
        end = time.monotonic() + self._launch["hello_s"]
        poll = select.poll()
        poll.register(self._agent.fd, select.POLLIN)
        while time.monotonic() < end and not self._agent.closed:
            poll.poll(max(0.0, end - time.monotonic()) * 1000 + 1)
            self._agent.flush()
            for message in self._agent.receive():
                if message.get("ev") == "hello":
                    return ""
        self._end_sandbox()
        self._listen_to_errors()
        said = self._complaints.decode("utf-8", "replace").strip()
        return said or "the sandbox did not start in time and printed no error"

    def _listen_to_errors(self) -> bool:
        try:
            data = os.read(self._sandbox.errors, 65536)
        except BlockingIOError:
            return True
        self._complaints = (self._complaints + data)[-4096:]
        return bool(data)

    def _end_sandbox(self) -> None:
        """End everything inside. All processes of the sandbox are our descendants, even after double forks."""
        processes.sweep(processes.reap, frozenset({self._watch.steward}), limit_s=20.0)

    def clean(self) -> None:
        """Remove, through the steward, the files that only a living supervisor needs."""
        for fd in self._held:
            os.close(fd)
        self._watch.close()

    # --- the loop ---

    def serve(self) -> None:
        """Serve clients until there is a reason to end."""
        self._idle_since = time.monotonic()  # the start of the sandbox does not count as idle
        poll = select.poll()
        errors = self._sandbox.errors
        poll.register(self._listener.fileno(), select.POLLIN)
        poll.register(errors, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._ending:
            self._listen_to(poll)
            wait_s = min(max(0.0, self._next_look() - time.monotonic()), LOOK_S)
            for fd, event in poll.poll(wait_s * 1000 + 1):
                if fd == self._listener.fileno():
                    self._accept()
                elif fd == self._wake:
                    os.read(self._wake, 4096)
                elif fd == errors:
                    if not self._listen_to_errors():
                        poll.unregister(errors)
                elif fd == self._agent.fd:
                    self._hear_agent()
                elif fd == self._watch.fd:
                    poll.unregister(fd)
                    self._hear_watch()
                elif fd in self._clients:
                    self._hear_client(self._clients[fd], gone=bool(event & select.POLLHUP))
                    if self._clients[fd].closed:
                        poll.unregister(fd)
                        self._silent.discard(fd)
                        self._clients.pop(fd).close()
            self._look(time.monotonic())

    def _listen_to(self, poll: select.poll) -> None:
        for channel in [self._agent, *self._clients.values()]:
            poll.register(channel.fd, select.POLLIN | (select.POLLOUT if channel.wants_write else 0))
        if self._watch.fd >= 0:
            poll.register(self._watch.fd, select.POLLIN)

    def _next_look(self) -> float:
        """Return the next time at which something is due without a message."""
        now = time.monotonic()
        due = [] if self._verbs.paused_since is not None else [call.deadline for call in self._register.open]
        if not self._register.busy():
            due.append(max(self._life_end, now + _RETRY_S))
            if not self._needed():
                due.append(self._idle_since + self._grace_s())
        if self._register.unsaved():
            due.append(now + _RETRY_S)
        if (asked := self._verbs.due()) is not None:
            due.append(asked)
        return min(due, default=now + LOOK_S)

    def _look(self, now: float) -> None:
        """Handle deadlines, and the reasons to end."""
        self._register.save_again()
        self._verbs.look(now)
        self._notifier.flush()
        still = self._verbs.paused_since is not None
        if any(now >= call.deadline for call in self._register.open) and not still:
            self._lost("a call passed its time limit and the sandbox did not end it")
            return
        busy = (self._register.busy() and not still) or bool(self._verbs.transfers)
        if now >= self._life_end and not busy:
            self._ending = "it reached its longest life"
        elif self._needed() or self._register.open or busy:
            self._idle_since = now
        elif now >= self._idle_since + self._grace_s():
            self._ending = "idle: no client and no running call"

    def _needed(self) -> bool:
        """Return True if a client is connected. One that never sent a message only tested the socket."""
        return len(self._clients) > len(self._silent)

    def _grace_s(self) -> float:
        """Return the idle time allowed without a call and a client; the first client has its own time to connect."""
        grace_s: float = self._launch["grace_s" if self._claimed else "claim_s"]
        return grace_s

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, self._user):
            client.close()
            return
        channel = Channel(client.detach())
        self._clients[channel.fd] = channel
        self._silent.add(channel.fd)

    def _hear_agent(self) -> None:
        self._agent.flush()
        try:
            messages = self._agent.receive()
        except WireError:
            self._lost("protocol error from the sandbox agent")
            return
        try:
            for message in messages:
                self._heed(message)
        except (KeyError, TypeError, ValueError):
            self._lost("protocol error from the sandbox agent")
        if self._agent.closed and not self._ending:
            self._lost("the sandbox ended")

    def _heed(self, message: Message) -> None:
        event = message["ev"]
        if event in ("paused", "resumed"):
            self._verbs.stood(message)
            return
        if self._verbs.transfers.hear(message["call"], message):
            return
        call = self._register.calls[message["call"]]
        if event == "began":
            self._watch.began(call.id, message["pid"])
        elif event == "prepared":
            self._register.prepared(call, message, self._verbs.epoch)
        elif event == "note":
            self._register.note(call, message)
        elif call.state == "running":
            self._register.finish(call, message["result"])

    def _hear_watch(self) -> None:
        """End the calls that exceeded a limit."""
        over, problem = self._watch.hear()
        for call_id in over:
            self._register.kill(call_id)
        if problem and not self._ending:
            self._lost(problem)

    def _hear_client(self, client: Channel, gone: bool) -> None:
        """Serve a client's messages. Those of a disconnected client are dropped."""
        client.flush()
        try:
            messages = client.receive()
        except WireError:
            client.closed = True
            return
        if gone:
            client.closed = True
            return
        if messages:
            self._silent.discard(client.fd)
        if messages and not self._claimed:
            self._claimed = True
            self._watch.claimed()
        for message in messages:
            try:
                self._verbs.serve(client, message)
            except Refusal as refusal:
                error = {"kind": refusal.kind, "message": str(refusal), "current": self._verbs.epoch}
                client.send({"id": message.get("id"), "error": error})
            except (KeyError, TypeError, ValueError) as error:
                client.send({"id": message.get("id"), "error": {"kind": "bad", "message": repr(error)}})

    # --- reasons to end ---

    def _release(self) -> None:
        """End the sandbox on request, without notifications."""
        self._ending = "released"
        self._notifier.hush()
        self._end_sandbox()

    def _no_start(self) -> str:
        """Return the reason that nothing can start any more. While a job runs these hands do not age."""
        jobs = any(call.tool == "job" for call in self._register.open)
        if time.monotonic() >= self._life_end and (self._retired or not jobs):
            return "these hands reached their longest life; make new ones"
        return ""

    def _lost(self, reason: str) -> None:
        """Handle the loss of the sandbox."""
        self._ending = reason
        self._end_sandbox()
        self._register.lost(reason)


def _leave(launch: Message) -> int:
    """Detach from the parent and its process session, so that their end does not affect us.

    The process in between stays as the notifier, if `on_news` is set; returns the descriptor that leads to it.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    source, to = os.pipe2(os.O_CLOEXEC) if launch["on_news"] else (-1, -1)
    if os.fork():
        if source >= 0:
            os.close(to)
            become_notifier(source, launch["on_news"])
        os._exit(0)
    if source >= 0:
        os.close(source)
    return to


def main() -> None:
    """Read the launch from standard input; print one line with the outcome."""
    launch = json.loads(sys.stdin.buffer.read())
    to = _leave(launch)
    supervisor, log = None, -1
    try:
        log = os.open(os.path.join(launch["folder"], "supervisor.log"), LOG, 0o600)
        supervisor = Supervisor(launch, Notifier(to))
        problem = supervisor.meet()
    except (OSError, JournalFull, KeyError, ValueError) as error:
        problem = f"the supervisor could not start: {error}"
    if problem and supervisor is not None:
        supervisor.clean()
    try:
        os.write(1, encode({"ok": not problem, "problem": problem, "pid": os.getpid()}))
    except OSError:
        pass  # the process that started us is dead: these hands become idle and unclaimed
    if problem or supervisor is None:
        return
    null = os.open("/dev/null", os.O_RDWR)
    for fd, to in ((null, 0), (null, 1), (log, 2)):
        os.dup2(fd, to, inheritable=False)
    try:
        supervisor.serve()
    finally:
        supervisor.clean()
