"""The verbs of one incarnation: requests of clients, each under its epoch (S9)."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable

from holdfast.hands.box.agent.archive import STEPS
from holdfast.hands.box.agent.output import piece_of
from holdfast.hands.box.supervisor.calls import Call, Refusal, Register, alive, fenced
from holdfast.hands.box.wire import Channel, Message

LOOK_S = 0.02
"""Interval for checking the output file while a client waits for more."""

INPUT_MAX = 1 << 20
"""Bytes of input that a command may leave unread."""

INPUT_WAIT_S = 2.0
"""Seconds that a client waits to write more than that."""

WAIT_MAX_S = 3600.0
"""Longest wait for an answer in seconds."""


class _Question:
    """A request whose answer may have to wait. `answer` returns None until then; at the deadline `late` answers."""

    def __init__(
        self,
        client: Channel,
        message: Message,
        wait_s: float,
        answer: Callable[[], Message | None],
        late: Callable[[], Message],
    ) -> None:
        self.client = client
        self.ask = message["id"]
        self.epoch = int(message["epoch"])
        self.until = time.monotonic() + min(max(0.0, wait_s), WAIT_MAX_S)
        self.answer = answer
        self.late = late
        self.call = str(message["call"])
        self.news = message["verb"] == "status"


class Verbs:
    """The served verbs. `release` ends these hands; `refusal` returns why nothing can start, empty when it can."""

    def __init__(
        self,
        launch: Message,
        register: Register,
        agent: Channel,
        *,
        release: Callable[[], None],
        refusal: Callable[[], str],
    ) -> None:
        self.epoch = int(launch["epoch"])
        self.paused_since: float | None = None
        self.transfers = Transfers(agent)
        self._hands_id = launch["opening"]["hands_id"]
        self._output = os.path.join(launch["folder"], "output")
        self._register = register
        self._agent = agent
        self._release = release
        self._refusal = refusal
        self._questions: list[_Question] = []
        self._changing: list[tuple[Channel, object]] = []
        self._standing = False
        register.listened = self._is_listened

    def serve(self, client: Channel, message: Message) -> None:
        """Answer, now or later. Raises `Refusal`, and `KeyError`, `TypeError`, `ValueError` for an invalid request."""
        epoch = int(message["epoch"])
        self._check(epoch)
        reply: Callable[[Message], None] = lambda body: client.send({"id": message["id"], "ok": body})  # noqa: E731
        match message["verb"]:
            case "hello" | "fence":
                reply({"hands_id": self._hands_id, "pid": os.getpid(), "epoch": self.epoch})
            case "start":
                self._may_start(message["call"])
                self._register.start(client, message["id"], epoch, message["call"], message["request"])
            case "wait":
                self._register.wait(client, message["id"], epoch, message["call"])
            case "kill":
                self._register.kill(message["call"])
                reply({})
            case "status" | "read" | "write":
                self._ask(client, message)
            case "pause" | "resume":
                self._stand(client, message["id"], still=message["verb"] == "pause")
            case "transfer":
                self._may_start("")
                reply(self.transfers.begin(message["op"], str(message["path"])))
            case "pull" | "push":
                number, data = int(message["transfer"]), str(message.get("data", ""))
                self.transfers.ask(client, message["id"], epoch, number, data)
            case "release":
                self._release()
                reply({})
            case verb:
                raise Refusal("bad", f"there is no verb {verb!r}")

    def _check(self, epoch: int) -> None:
        """Refuse a lower epoch than the highest seen (S9); a higher one shuts out the lower ones."""
        if epoch < self.epoch:
            raise Refusal("fenced", "these hands belong to a later shift than the one that asks")
        if epoch == self.epoch:
            return
        self.epoch = epoch
        self._register.shut_out(epoch)
        self.transfers.shut_out(epoch, fenced(epoch))
        for question in self._questions:
            question.client.send({"id": question.ask, "error": fenced(epoch)})
        self._questions = []

    def _may_start(self, call_id: str) -> None:
        if call_id in self._register.calls:
            return
        if problem := self._refusal():
            raise Refusal("lost", problem)
        if self._standing:
            raise Refusal("no", "these hands are paused; resume them before something is started")

    # --- requests that may have to wait ---

    def _ask(self, client: Channel, message: Message) -> None:
        wait_s = float(message.get("wait_s", 0.0))
        match message["verb"]:
            case "status":
                question = self._status(client, message, wait_s)
            case "read":
                question = self._read(client, message, wait_s)
            case _:
                question = self._write(client, message)
        if not self._settle(question, time.monotonic()):
            self._questions.append(question)

    def _status(self, client: Channel, message: Message, wait_s: float) -> _Question:
        def known() -> Message:
            return self._register.status(message["call"])

        def settled() -> Message | None:
            said = known()
            if said["state"] == "running" and not (set(said) & {"line", "problem"} or said.get("ready") == "yes"):
                return None
            return said

        return _Question(client, message, wait_s, settled, known)

    def _read(self, client: Channel, message: Message, wait_s: float) -> _Question:
        call = self._register.known(message["call"])
        after, most = max(0, int(message["after"])), int(message["max_bytes"])

        def kept() -> Message:
            result = self._register.result(call) if call.state == "done" else None
            piece = piece_of(self._output, call.id, after, most, result, over=False)
            return piece._asdict()

        def some() -> Message | None:
            said = kept()
            return said if said["text"] or said["ended"] or said["dropped"] else None

        return _Question(client, message, wait_s, some, kept)

    def _write(self, client: Channel, message: Message) -> _Question:
        call = self._register.known(message["call"])
        data = base64.b64decode(message["data"])
        offset, close = int(message["offset"]), bool(message["close"])

        def slow() -> Message:
            raise Refusal(
                "no",
                f"call {call.id} has not read {call.given - call.taken} bytes that it was given; it was given "
                f"{call.given} in all: give the rest, from there on, later",
            )

        return _Question(client, message, INPUT_WAIT_S, lambda: self._give(call, data, offset, close=close), slow)

    def _give(self, call: Call, data: bytes, offset: int, *, close: bool) -> Message | None:
        """Pass new input on to the command. None while there is no room for it."""
        if call.closed and offset + len(data) <= call.given:
            return {}
        fresh = data[max(0, call.given - offset) :]
        if not fresh and not close:
            return {}
        if not call.takes:
            raise Refusal("no", f"call {call.id} has no input; it was started without `stdin`")
        if call.closed or call.state != "running":
            raise Refusal("no", f"call {call.id} takes no more input, so nothing was given")
        if offset > call.given:
            raise Refusal("no", f"call {call.id} was given {call.given} bytes, not {offset}, so nothing was given")
        if call.given - call.taken + len(fresh) > INPUT_MAX:
            return None
        call.given += len(fresh)
        call.closed = close
        text = base64.b64encode(fresh).decode()
        self._agent.send({"op": "input", "call": call.id, "data": text, "close": close})
        return {}

    def _settle(self, question: _Question, now: float) -> bool:
        """Answer a request once that is possible, or at its deadline."""
        try:
            body = question.answer()
            if body is None and now >= question.until:
                body = question.late()
        except Refusal as refusal:
            error = {"kind": refusal.kind, "message": str(refusal), "current": self.epoch}
            question.client.send({"id": question.ask, "error": error})
            return True
        if body is None:
            return False
        question.client.send({"id": question.ask, "ok": body})
        return True

    def look(self, now: float) -> None:
        """Answer all requests that can be answered now."""
        self._questions = [
            question for question in self._questions if not question.client.closed and not self._settle(question, now)
        ]
        self.transfers.look(now)

    def due(self) -> float | None:
        """Return the next time at which a request or transfer is due without a message."""
        if not self._questions and not self.transfers:
            return None
        now = time.monotonic()
        if any(not question.news for question in self._questions):
            return now + LOOK_S
        return min((question.until for question in self._questions), default=now + 1.0)

    def _is_listened(self, call: Call) -> bool:
        return any(
            question.news and question.call == call.id and alive(question.client) for question in self._questions
        )

    # --- pause and resume ---

    def _stand(self, client: Channel, ask: object, *, still: bool) -> None:
        if still == self._standing and not self._changing:
            client.send({"id": ask, "ok": {}})
            return
        if self._changing:
            raise Refusal("no", "these hands are just being paused or resumed; try again")
        self._standing = True
        self._changing.append((client, ask))
        self._agent.send({"op": "pause" if still else "resume"})

    def stood(self, message: Message) -> None:
        """Record that the agent has paused or resumed all processes inside."""
        done = message["ev"] == "paused" and bool(message["done"])
        if done:
            self.paused_since = time.monotonic()
        elif self.paused_since is not None:
            self._register.later(time.monotonic() - self.paused_since)
            self.paused_since = None
        self._standing = done
        for client, ask in self._changing:
            if message["ev"] == "paused" and not done:
                text = "processes were started faster than they could be stopped, so all goes on; try again"
                client.send({"id": ask, "error": {"kind": "no", "message": text}})
            else:
                client.send({"id": ask, "ok": {}})
        self._changing = []


IDLE_S = 60.0
"""Seconds that a client may leave a transfer alone before it is ended."""

MOST = 8
"""Maximum number of concurrent transfers."""

_PREFIX = "//"
"""Prefix of their ids in the agent: no call id begins with it."""


class Transfer:
    """One transfer. `pending` is the request that waits for the next piece, `result` its end."""

    def __init__(self) -> None:
        self.pending: tuple[Channel, object, int] | None = None
        self.result: Message | None = None
        self.touched = time.monotonic()


class Transfers:
    """All transfers."""

    def __init__(self, agent: Channel) -> None:
        self._agent = agent
        self._open: dict[str, Transfer] = {}
        self._count = 0

    def __bool__(self) -> bool:
        """True while any is in progress."""
        return bool(self._open)

    def begin(self, step: str, path: str) -> Message:
        """Start a transfer."""
        if step not in STEPS:
            raise Refusal("bad", f"there is no step {step!r}")
        if len(self._open) >= MOST:
            raise Refusal("no", f"{MOST} folders are being moved already; try again when one of them is there")
        self._count += 1
        name = f"{_PREFIX}{self._count}"
        self._open[name] = Transfer()
        self._agent.send({"op": step, "call": name, "path": path})
        return {"transfer": self._count}

    def ask(self, client: Channel, ask: object, epoch: int, number: int, data: str) -> None:
        """Request the next piece, or send it; the answer is sent when the child has produced or accepted it."""
        name = f"{_PREFIX}{number}"
        transfer = self._open.get(name)
        if transfer is None or transfer.pending is not None:
            raise Refusal("no", "this folder is not being moved any more; begin again")
        transfer.touched = time.monotonic()
        transfer.pending = (client, ask, epoch)
        if transfer.result is not None:
            self._end(name, transfer)
        else:
            self._agent.send({"op": "piece", "call": name, "data": data})

    def hear(self, name: str, message: Message) -> bool:
        """Handle a message of the agent. False if it belongs to no transfer."""
        if not name.startswith(_PREFIX):
            return False
        transfer = self._open.get(name)
        if transfer is None or message["ev"] == "began":
            return True
        if message["ev"] == "piece":
            if transfer.pending is not None:
                client, ask, _ = transfer.pending
                transfer.pending = None
                client.send({"id": ask, "ok": {"data": str(message.get("data", ""))}})
        else:
            transfer.result = message["result"]
            self._end(name, transfer)
        return True

    def _end(self, name: str, transfer: Transfer) -> None:
        """Answer with the end of the transfer, if a client waits for it."""
        result = transfer.result
        if transfer.pending is None or result is None:
            return
        client, ask, _ = transfer.pending
        del self._open[name]
        if result.get("ok"):
            client.send({"id": ask, "ok": {"done": True, "entries": int(result.get("entries", 0))}})
        else:
            text = f"the folder was not moved whole: {result.get('output') or 'its process was ended'}"
            client.send({"id": ask, "error": {"kind": "no", "message": text}})

    def look(self, now: float) -> None:
        """End transfers that are abandoned or make no progress."""
        for name, transfer in [each for each in self._open.items() if now > each[1].touched + IDLE_S]:
            if transfer.pending is not None:
                client, ask, _ = transfer.pending
                text = f"the folder was not moved whole: nothing came for {IDLE_S:.0f} s, so it was given up"
                client.send({"id": ask, "error": {"kind": "no", "message": text}})
            del self._open[name]
            self._agent.send({"op": "kill", "call": name})

    def shut_out(self, epoch: int, error: Message) -> None:
        """End the transfers under a lower epoch."""
        for name, transfer in list(self._open.items()):
            if transfer.pending is not None and transfer.pending[2] < epoch:
                transfer.pending[0].send({"id": transfer.pending[1], "error": error})
            del self._open[name]
            self._agent.send({"op": "kill", "call": name})
