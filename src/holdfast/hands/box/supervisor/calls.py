"""One call as the supervisor sees it, and the error for a refused verb."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from holdfast.hands.box.supervisor.journal import NOTES, Journal, JournalFull, Place
from holdfast.hands.box.supervisor.limits import Watch
from holdfast.hands.box.supervisor.notifier import Notifier
from holdfast.hands.box.wire import Channel, Message

COMMANDS = ("bash", "job", "service")
"""Tools whose calls run a command."""


class Call:
    """One call: `preparing` (nothing has run yet), `running`, `done`.

    `notes` are the results reported while it ran. `given` and `taken` count the bytes of its input: those accepted for
    it, and those that it read.
    """

    def __init__(self, call_id: str, request: Message, deadline: float) -> None:
        self.id = call_id
        self.tool = str(request["tool"])
        self.name = str(request["input"].get("name") or "")
        self.request = request
        self.deadline = deadline
        self.state = "preparing"
        self.stop = False
        self.expect: Message | None = None
        self.starters: list[tuple[Channel, Any]] = []
        self.waiters: list[tuple[Channel, Any, int]] = []
        self.notes: Message = {}
        self.given = 0
        self.taken = 0
        self.takes = self.tool in COMMANDS and bool(request["input"].get("stdin"))
        self.closed = False
        self.place: Place | None = None
        self.unsaved: Message | None = None


class Refusal(Exception):
    """A refused verb; `kind` tells the client which error to raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def alive(client: Channel) -> bool:
    """Return True unless the client of this connection has gone away."""
    return not client.closed and not client.hung_up()


OVERDUE_S = 60.0
"""Seconds after its time limit or a kill that a call may stay without an end; then the sandbox is given up."""

_PREPARED = ("write", "edit")


class Register:
    """The calls and their waiting clients. `listened` is True for a call whose status a client is waiting for."""

    def __init__(self, journal: Journal, agent: Channel, watch: Watch, notifier: Notifier) -> None:
        self.calls: dict[str, Call] = {}
        self.listened: Callable[[Call], bool] = lambda call: False
        self._journal = journal
        self._agent = agent
        self._watch = watch
        self._notifier = notifier

    # --- queries of the main loop ---

    @property
    def open(self) -> list[Call]:
        """Return the calls that have not ended."""
        return [call for call in self.calls.values() if call.state != "done"]

    def busy(self) -> bool:
        """True while a call runs that ends by itself: these hands do not end before it."""
        return any(call.tool != "service" for call in self.open)

    def unsaved(self) -> bool:
        """True while the journal lacks an end for want of space."""
        return any(call.unsaved is not None for call in self.calls.values())

    def save_again(self) -> None:
        """Retry the journal records that did not fit before."""
        for call in self.calls.values():
            if call.unsaved is not None:
                self._save(call, call.unsaved)

    # --- requests of clients ---

    def start(self, client: Channel, ask: object, epoch: int, call_id: str, request: Message) -> None:
        """Start a call; the answer is sent once its start is journaled. A known one is not started again."""
        call = self.calls.get(call_id)
        if call is None:
            limit_s = math.inf if request["tool"] == "service" else float(request["timeout_s"]) + OVERDUE_S
            call = Call(call_id, request, time.monotonic() + limit_s)
            if call.tool == "service" and any(
                other.tool == "service" and other.name == call.name != "" for other in self.open
            ):
                raise Refusal("no", f"a service {call.name!r} runs here already; stop it first, or choose another name")
            self.calls[call_id] = call
            call.starters.append((client, ask))
            if call.tool in _PREPARED:
                self._agent.send({"op": "prepare", "call": call.id, "request": request})
            else:
                self._run(call, epoch)
        elif call.state == "preparing":
            call.starters.append((client, ask))
        else:
            client.send({"id": ask, "ok": {}})

    def known(self, call_id: str) -> Call:
        """Return a call that was started here. Raises `Refusal` for any other."""
        call = self.calls.get(call_id)
        if call is None:
            raise Refusal("no", f"call {call_id} was never started here")
        return call

    def wait(self, client: Channel, ask: object, epoch: int, call_id: str) -> None:
        """Answer with the result once it is known."""
        call = self.known(call_id)
        if call.state == "done":
            client.send({"id": ask, "ok": self.result(call)})
        else:
            call.waiters.append((client, ask, epoch))

    def kill(self, call_id: str) -> None:
        """Kill a running call."""
        call = self.calls.get(call_id)
        if call is not None and call.state != "done" and not call.stop:
            call.stop = True
            call.deadline = min(call.deadline, time.monotonic() + OVERDUE_S)
            self._agent.send({"op": "kill", "call": call_id})

    def status(self, call_id: str) -> Message:
        """Return the status of a call."""
        call = self.calls.get(call_id)
        if call is None:
            return {"state": "never_started"}
        if call.state == "done":
            return {"state": "finished", "result": self.result(call), **call.notes}
        return {"state": "running", **call.notes}

    def result(self, call: Call) -> Message:
        """Return the result of a finished call."""
        if call.unsaved is not None:
            return call.unsaved
        assert call.place is not None
        result: Message = self._journal.read(call.place)["result"]
        return result

    # --- messages of the agent ---

    def prepared(self, call: Call, message: Message, epoch: int) -> None:
        """Run a write or edit whose effect is known now, or finish it with its refusal."""
        result = message.get("result")
        if result is None:
            call.expect = message["expect"]
            if call.stop:
                result = {"ok": False, "output": "[stopped before it was done]", "cancelled": True}
        if self._run(call, epoch, asked=result is None) and result is not None:
            self.finish(call, result)

    def note(self, call: Call, message: Message) -> None:
        """Record a note of the agent about a running call."""
        if "taken" in message:
            call.taken = int(message["taken"])
            return
        news = {name: str(message[name]) for name in NOTES if name in message}
        if call.state != "running" or not news:
            return
        if call.tool == "job" and not self._is_heard(call):
            self._notifier.line(call.id)
        self._note(call, news)

    def finish(self, call: Call, result: Message) -> None:
        """Journal the end of a call, and notify its clients, or the notifier."""
        heard = self._is_heard(call)
        if call.notes.get("ready") == "waiting":
            self._note(call, {"ready": "no", "problem": "it ended before it was ready"})
        call.state = "done"
        result = self._watch.ended(call.id, result)
        self._save(call, result)
        for client, ask, _ in call.waiters:
            client.send({"id": ask, "ok": result})
        call.waiters = []
        if call.tool == "job":
            self._notifier.over(call.id, tell=not heard)

    def lost(self, reason: str) -> None:
        """End all calls of a lost sandbox: their outcome is unknown."""
        for call in self.open:
            if call.state == "running" and (known := self._watch.gone(call.id)) is not None:
                self.finish(call, known)
        try:
            self._journal.write({"t": "lost", "reason": reason})
        except JournalFull:
            pass
        for call in self.open:
            if call.tool == "job" and self._is_heard(call):
                self._notifier.over(call.id, tell=False)
            for client, ask in [*call.starters, *((client, ask) for client, ask, _ in call.waiters)]:
                client.send({"id": ask, "error": {"kind": "lost", "message": f"these hands are gone: {reason}"}})

    # --- epochs and pauses ---

    def shut_out(self, epoch: int) -> None:
        """Refuse the clients that wait under a lower epoch (S9)."""
        try:
            self._journal.write({"t": "epoch", "epoch": epoch})
        except JournalFull:
            pass  # only a reader after our death would need it, and then no call is served
        for call in self.calls.values():
            for client, ask, theirs in call.waiters:
                if theirs < epoch:
                    client.send({"id": ask, "error": fenced(epoch)})
            call.waiters = [waiter for waiter in call.waiters if waiter[2] >= epoch]

    def later(self, seconds: float) -> None:
        """Extend all time limits by the length of a pause."""
        for call in self.calls.values():
            call.deadline += seconds

    # --- running and ending calls ---

    def _run(self, call: Call, epoch: int, *, asked: bool = True) -> bool:
        """Journal the start of a call, and only then send it to the agent (S8)."""
        fields = {"call": call.id, "epoch": epoch, "tool": call.tool, "expect": call.expect}
        try:
            self._journal.write({"t": "started", **fields})
        except JournalFull as error:
            del self.calls[call.id]
            text = f"the disk took no journal line ({error}), so the call was not started; free some space"
            for client, ask in call.starters:
                client.send({"id": ask, "error": {"kind": "full", "message": text}})
            return False
        call.state = "running"
        if call.tool == "job":
            self._notifier.watch(call.id)
        elif call.tool == "service" and call.request["input"].get("health"):
            call.notes["ready"] = "waiting"
        if asked:
            self._agent.send({"op": "run", "call": call.id, "request": call.request, "expect": call.expect})
        for client, ask in call.starters:
            client.send({"id": ask, "ok": {}})
        call.starters = []
        call.request = {}
        return True

    def _note(self, call: Call, news: Message) -> None:
        call.notes.update(news)
        try:
            self._journal.write({"t": "note", "call": call.id, **news})
        except JournalFull:
            pass  # it stays known here; only a reader after our death would need the record

    def _save(self, call: Call, result: Message) -> None:
        """Journal the end. If the disk is full, keep it here and retry."""
        try:
            call.place = self._journal.write({"t": "exit", "call": call.id, "result": result})
            call.unsaved = None
        except JournalFull:
            call.unsaved = result

    def _is_heard(self, call: Call) -> bool:
        return self.listened(call) or any(alive(client) for client, _, _ in call.waiters)


def fenced(epoch: int) -> Message:
    """Return the error for a request under a lower epoch than that."""
    return {"kind": "fenced", "message": "a later shift owns these hands now", "current": epoch}
