"""One call as the supervisor sees it, and a verb that it does not serve."""

from __future__ import annotations

from typing import Any

from holdfast.hands.box.journal import Place
from holdfast.hands.box.wire import Channel, Message

COMMANDS = ("bash", "job", "service")
"""The tools whose calls run a command."""


class Call:
    """One call: `preparing` (nothing was done yet), `running`, `done`.

    `notes` is what became known of it while it ran. `given` and `taken` count the bytes of its input: those that were
    accepted for it, and those that it read.
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
    """A verb that is not served; `kind` tells the client which error to raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def alive(client: Channel) -> bool:
    """True unless whoever asked over this connection has gone away."""
    return not client.closed and not client.hung_up()
