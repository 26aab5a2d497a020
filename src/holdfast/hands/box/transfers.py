"""Folders on their way in and out: the supervisor's side, one piece at a time, each when a client asks for it."""

from __future__ import annotations

import time

from holdfast.hands.box.calls import Refusal
from holdfast.hands.box.moving import STEPS
from holdfast.hands.box.wire import Channel, Message

IDLE_S = 60.0
"""How long a client may leave one alone before it is ended."""

MOST = 8
"""How many there are at once at most."""

_PREFIX = "//"
"""How their names in the agent begin: no call's does."""


class Transfer:
    """One of them. `pending` is the question that waits for the next piece, `result` its end."""

    def __init__(self) -> None:
        self.pending: tuple[Channel, object, int] | None = None
        self.result: Message | None = None
        self.touched = time.monotonic()


class Transfers:
    """All of them."""

    def __init__(self, agent: Channel) -> None:
        self._agent = agent
        self._open: dict[str, Transfer] = {}
        self._count = 0

    def __bool__(self) -> bool:
        """True while any is under way."""
        return bool(self._open)

    def begin(self, step: str, path: str) -> Message:
        """Start one."""
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
        """Ask for the next piece, or hand it on; the answer goes out when the child has made or taken it."""
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
        """What the agent says. False when that is about no transfer."""
        if not name.startswith(_PREFIX):
            return False
        transfer = self._open.get(name)
        if transfer is None or message["ev"] == "began":
            return True
        if message["ev"] == "piece":
            self._answer(transfer, {"data": str(message.get("data", ""))})
        else:
            transfer.result = message["result"]
            self._end(name, transfer)
        return True

    def _answer(self, transfer: Transfer, body: Message) -> None:
        if transfer.pending is not None:
            client, ask, _ = transfer.pending
            transfer.pending = None
            client.send({"id": ask, "ok": body})

    def _end(self, name: str, transfer: Transfer) -> None:
        """Say how it ended, when somebody asks."""
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
        """End those that nobody asks for any more, or that do not get on."""
        for name, transfer in [each for each in self._open.items() if now > each[1].touched + IDLE_S]:
            if transfer.pending is not None:
                client, ask, _ = transfer.pending
                text = f"the folder was not moved whole: nothing came for {IDLE_S:.0f} s, so it was given up"
                client.send({"id": ask, "error": {"kind": "no", "message": text}})
            del self._open[name]
            self._agent.send({"op": "kill", "call": name})

    def shut_out(self, epoch: int, error: Message) -> None:
        """Those of a lower epoch are ended."""
        for name, transfer in list(self._open.items()):
            if transfer.pending is not None and transfer.pending[2] < epoch:
                transfer.pending[0].send({"id": transfer.pending[1], "error": error})
            del self._open[name]
            self._agent.send({"op": "kill", "call": name})
