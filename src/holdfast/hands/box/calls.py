"""One call as the supervisor sees it, and a verb that it does not serve."""

from __future__ import annotations

from typing import Any

from holdfast.hands.box.journal import Place
from holdfast.hands.box.wire import Channel, Message


class Call:
    """One call: `preparing` (nothing was done yet), `running`, `done`."""

    def __init__(self, call_id: str, request: Message, deadline: float) -> None:
        self.id = call_id
        self.request = request
        self.deadline = deadline
        self.state = "preparing"
        self.stop = False
        self.expect: Message | None = None
        self.starters: list[tuple[Channel, Any]] = []
        self.waiters: list[tuple[Channel, Any, int]] = []
        self.place: Place | None = None
        self.unsaved: Message | None = None


class Refusal(Exception):
    """A verb that is not served; `kind` tells the client which error to raise."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
