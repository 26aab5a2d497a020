"""The supervisor: parent of one sandbox, outside it; keeps its journal and serves its verbs (S9, S10).

Made of a launch (see `entry`), it locks its lock file for life, starts the sandbox and waits for the
agent's first word. Then it serves a unix socket: hello, fence, start, wait, kill, status, release, each
with the caller's epoch. It ends when it is idle and unclaimed for a while, at its longest life,
when its sandbox is gone, or when released; never during a call that still may run.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable

from holdfast.hands.box import group, kernel, places, spawn, tree
from holdfast.hands.box.calls import Call, Refusal
from holdfast.hands.box.journal import Journal, JournalFull
from holdfast.hands.box.watch import Watch
from holdfast.hands.box.wire import Channel, Message, WireError

OVERDUE_S = 60.0
"""How long after its time limit a call may have no end before the sandbox is given up."""

_RETRY_S = 0.5
_PREPARED = ("write", "edit")


class Supervisor:
    """The state of one incarnation, and its loop."""

    def __init__(self, launch: Message) -> None:
        self._launch = launch
        self._began = time.monotonic()
        self._idle_since = self._began
        self._epoch = int(launch["epoch"])
        self._calls: dict[str, Call] = {}
        self._clients: dict[int, Channel] = {}
        self._complaints = b""
        self._ending = ""
        self._claimed = False
        self._life_end = self._began + launch["life_s"]
        self._wake, wake_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._retire)
        kernel.become_subreaper()
        os.umask(0o077)
        folder = launch["folder"]
        self._lock = kernel.hold_lock(os.path.join(folder, "lock"))
        self._journal = Journal(os.path.join(folder, "journal"))
        self._journal.write({"t": "open", **launch["opening"], "pid": os.getpid()})
        self._journal.write({"t": "epoch", "epoch": self._epoch})
        self._held = [places.hold(place) for place in launch["opening"]["places"]]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(launch["socket"])
        self._listener.listen(64)
        limits = group.make(launch["holding"]["plan"], os.path.join(folder, group.RECORD))
        self._sandbox = spawn.start(launch, limits.doors)
        self._watch = Watch(launch["holding"], limits, os.path.join(folder, "supervisor.log"))
        self._agent = Channel(self._sandbox.control)
        self._agent.send({"op": "setup", **launch["setup"]})

    def _retire(self, number: int, frame: object) -> None:
        """Asked to end: take no new call, and go when the running ones have ended."""
        self._life_end = self._began

    # --- the sandbox ---

    def meet(self) -> str:
        """Wait for the agent's first word. Returns why there is none, empty when all is well."""
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
        return said or "the sandbox said nothing and did not start in time"

    def _listen_to_errors(self) -> bool:
        try:
            data = os.read(self._sandbox.errors, 65536)
        except BlockingIOError:
            return True
        self._complaints = (self._complaints + data)[-4096:]
        return bool(data)

    def _end_sandbox(self) -> None:
        """End everything inside. What we started is a descendant of ours, wherever it fled."""
        tree.sweep(tree.reap, limit_s=20.0)

    def clean(self) -> None:
        """Take away what only a living supervisor needs."""
        self._watch.close()
        try:
            os.unlink(self._launch["socket"])
        except OSError:
            pass
        for fd in self._held:
            os.close(fd)
        for place in self._launch["opening"]["places"]:
            places.drop(place)
        if not self._claimed:
            _remove_unclaimed(self._launch["folder"])

    # --- the loop ---

    def serve(self) -> None:
        """Until there is a reason to end."""
        poll = select.poll()
        errors = self._sandbox.errors
        poll.register(self._listener.fileno(), select.POLLIN)
        poll.register(errors, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._ending:
            self._register(poll)
            for fd, event in poll.poll(max(0.0, self._next_look() - time.monotonic()) * 1000 + 1):
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
                        self._clients.pop(fd).close()
            self._look(time.monotonic())

    def _register(self, poll: select.poll) -> None:
        for channel in [self._agent, *self._clients.values()]:
            poll.register(channel.fd, select.POLLIN | (select.POLLOUT if channel.wants_write else 0))
        if self._watch.fd >= 0:
            poll.register(self._watch.fd, select.POLLIN)

    def _busy(self) -> bool:
        return any(call.state != "done" for call in self._calls.values())

    def _next_look(self) -> float:
        """When something is due although nobody speaks."""
        due = [call.deadline for call in self._calls.values() if call.state != "done"]
        if not due:
            due.append(max(self._life_end, time.monotonic() + _RETRY_S))
            if not self._clients:
                due.append(self._idle_since + self._launch["grace_s"])
        if any(call.unsaved for call in self._calls.values()):
            due.append(time.monotonic() + _RETRY_S)
        return min(due)

    def _look(self, now: float) -> None:
        """Deadlines, and the reasons to end."""
        for call in self._calls.values():
            if call.unsaved is not None:
                self._save(call, call.unsaved)
        overdue = [call for call in self._calls.values() if call.state != "done" and now >= call.deadline]
        if overdue:
            self._lost("a call passed its time limit and the sandbox did not end it")
        elif self._busy() or self._clients:
            self._idle_since = now
            if not self._busy() and now >= self._life_end:
                self._ending = "it reached its longest life"
        elif now >= self._idle_since + self._launch["grace_s"]:
            self._ending = "nobody needed it"

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.getuid()):
            client.close()
            return
        self._claimed = True
        channel = Channel(client.detach())
        self._clients[channel.fd] = channel

    def _hear_agent(self) -> None:
        self._agent.flush()
        try:
            messages = self._agent.receive()
        except WireError:
            self._lost("the sandbox's agent spoke nonsense")
            return
        try:
            for message in messages:
                call = self._calls[message["call"]]
                if message["ev"] == "began":
                    self._watch.began(call.id, message["pid"])
                elif message["ev"] == "prepared":
                    self._prepared(call, message)
                elif call.state == "running":
                    self._finish(call, message["result"])
        except (KeyError, TypeError):
            self._lost("the sandbox's agent spoke nonsense")
        if self._agent.closed and not self._ending:
            self._lost("the sandbox ended")

    def _hear_watch(self) -> None:
        """End the calls that went over a limit."""
        over, problem = self._watch.hear()
        for call_id in over:
            self._kill(call_id)
        if problem and not self._ending:
            self._lost(problem)

    def _hear_client(self, client: Channel, gone: bool) -> None:
        """Serve what a client asks. One that went away before it was heard wants nothing any more."""
        client.flush()
        try:
            messages = client.receive()
        except WireError:
            client.closed = True
            return
        if gone:
            client.closed = True
            return
        for message in messages:
            try:
                self._serve(client, message)
            except Refusal as refusal:
                error = {"kind": refusal.kind, "message": str(refusal), "current": self._epoch}
                client.send({"id": message.get("id"), "error": error})
            except (KeyError, TypeError, ValueError) as error:
                client.send({"id": message.get("id"), "error": {"kind": "bad", "message": repr(error)}})

    # --- the verbs ---

    def _serve(self, client: Channel, message: Message) -> None:
        self._check(int(message["epoch"]))
        reply: Callable[[Message], None] = lambda body: client.send({"id": message["id"], "ok": body})  # noqa: E731
        match message["verb"]:
            case "hello" | "fence":
                reply({"hands_id": self._launch["opening"]["hands_id"], "pid": os.getpid(), "epoch": self._epoch})
            case "start":
                self._start(client, message)
            case "wait":
                self._wait(client, message)
            case "kill":
                self._kill(message["call"])
                reply({})
            case "status":
                reply(self._status(message["call"]))
            case "release":
                self._ending = "released"
                self._end_sandbox()
                reply({})
            case verb:
                raise Refusal("bad", f"there is no verb {verb!r}")

    def _check(self, epoch: int) -> None:
        """Refuse a lower epoch than was seen (S9); a higher one shuts the lower ones out."""
        if epoch < self._epoch:
            raise Refusal("fenced", f"these hands belong to epoch {self._epoch}, this came from epoch {epoch}")
        if epoch == self._epoch:
            return
        self._epoch = epoch
        try:
            self._journal.write({"t": "epoch", "epoch": epoch})
        except JournalFull:
            pass  # only the dead would need to read it, and they serve no call
        for call in self._calls.values():
            for client, ask, theirs in call.waiters:
                if theirs < epoch:
                    error = {"kind": "fenced", "message": f"epoch {epoch} owns these hands now", "current": epoch}
                    client.send({"id": ask, "error": error})
            call.waiters = [waiter for waiter in call.waiters if waiter[2] >= epoch]

    def _start(self, client: Channel, message: Message) -> None:
        call = self._calls.get(message["call"])
        if call is None:
            if time.monotonic() >= self._life_end:
                raise Refusal("lost", "these hands reached their longest life; make new ones")
            request = message["request"]
            deadline = time.monotonic() + float(request["timeout_s"]) + OVERDUE_S
            call = self._calls[message["call"]] = Call(message["call"], request, deadline)
            call.starters.append((client, message["id"]))
            if request["tool"] in _PREPARED:
                self._agent.send({"op": "prepare", "call": call.id, "request": request})
            else:
                self._run(call)
        elif call.state == "preparing":
            call.starters.append((client, message["id"]))
        else:
            client.send({"id": message["id"], "ok": {}})

    def _wait(self, client: Channel, message: Message) -> None:
        call = self._calls.get(message["call"])
        if call is None:
            raise Refusal("bad", f"call {message['call']} was never started here")
        if call.state == "done":
            client.send({"id": message["id"], "ok": self._result(call)})
        else:
            call.waiters.append((client, message["id"], int(message["epoch"])))

    def _kill(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is not None and call.state != "done" and not call.stop:
            call.stop = True
            self._agent.send({"op": "kill", "call": call_id})

    def _status(self, call_id: str) -> Message:
        call = self._calls.get(call_id)
        if call is None:
            return {"state": "never_started"}
        if call.state == "done":
            return {"state": "finished", "result": self._result(call)}
        return {"state": "running"}

    # --- the lives of calls ---

    def _prepared(self, call: Call, message: Message) -> None:
        result = message.get("result")
        if result is None:
            call.expect = message["expect"]
            if call.stop:
                result = {"ok": False, "output": "[stopped before it was done]", "cancelled": True}
        if self._run(call, asked=result is None) and result is not None:
            self._finish(call, result)

    def _run(self, call: Call, *, asked: bool = True) -> bool:
        """Journal that it starts, and only then ask the agent for it (S8)."""
        fields = {"call": call.id, "epoch": self._epoch, "tool": call.request["tool"], "expect": call.expect}
        try:
            self._journal.write({"t": "started", **fields})
        except JournalFull as error:
            del self._calls[call.id]
            text = f"the disk took no journal line ({error}), so the call was not started; free some space"
            for client, ask in call.starters:
                client.send({"id": ask, "error": {"kind": "full", "message": text}})
            return False
        call.state = "running"
        if asked:
            self._agent.send({"op": "run", "call": call.id, "request": call.request, "expect": call.expect})
        for client, ask in call.starters:
            client.send({"id": ask, "ok": {}})
        call.starters = []
        call.request = {"tool": call.request["tool"]}
        return True

    def _finish(self, call: Call, result: Message) -> None:
        call.state = "done"
        result = self._watch.ended(call.id, result)
        self._save(call, result)
        for client, ask, _ in call.waiters:
            client.send({"id": ask, "ok": result})
        call.waiters = []

    def _save(self, call: Call, result: Message) -> None:
        """Journal the end. When the disk is full it is kept here and tried again."""
        try:
            call.place = self._journal.write({"t": "exit", "call": call.id, "result": result})
            call.unsaved = None
        except JournalFull:
            call.unsaved = result

    def _result(self, call: Call) -> Message:
        if call.unsaved is not None:
            return call.unsaved
        assert call.place is not None
        result: Message = self._journal.read(call.place)["result"]
        return result

    def _lost(self, reason: str) -> None:
        """The sandbox is gone: what ran in it has no known end."""
        self._ending = reason
        self._end_sandbox()
        for call in self._calls.values():
            if call.state == "running" and (known := self._watch.gone(call.id)) is not None:
                self._finish(call, known)
        try:
            self._journal.write({"t": "lost", "reason": reason})
        except JournalFull:
            pass
        for call in self._calls.values():
            for client, ask in [*call.starters, *((client, ask) for client, ask, _ in call.waiters)]:
                client.send({"id": ask, "error": {"kind": "lost", "message": f"these hands are gone: {reason}"}})


def _remove_unclaimed(folder: str) -> None:
    """Whoever asked for these hands died before it could name them anywhere: nobody will ask for them."""
    try:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)
        os.rmdir(folder)
    except OSError:
        pass
