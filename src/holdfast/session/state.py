"""The state of a session: folded from its events, never stored as truth (S19).

It holds positions and small facts, not bodies: what the model sees is named by sequence number and
read from the log when a request is built.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import OnUnknown, Usage
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import StopReason
from holdfast.facts.session import Limits, SessionCreated
from holdfast.facts.shift import ShiftEnded

CallEnd = Literal["ok", "error", "denied", "skipped", "cancelled", "unknown"]


class UserItem(msgspec.Struct, array_like=True, tag="u"):
    """A person's message at its place in the context."""

    seq: int
    tokens: int


class ResponseItem(msgspec.Struct, array_like=True, tag="r"):
    """A response at its place: its parts, and for each of its calls the result's position, 0 if none."""

    request_seq: int
    tokens: int
    parts: list[int] = []
    results: list[int] = []
    stop_reason: StopReason | None = None


Item = UserItem | ResponseItem


class Call(msgspec.Struct):
    """A tool call of the latest response.

    `problem` says why it cannot run at all (a malformed or invalid input), empty when it can.
    `hands_id` and `attempt` are of the latest dispatch; attempt 0 means never dispatched. `end` is how
    it ended, None while it has not (S7).
    """

    call_id: str
    seq: int
    name: str
    problem: str = ""
    read_only: bool = False
    on_unknown: OnUnknown = "tell"
    attempt: int = 0
    hands_id: str = ""
    end: CallEnd | None = None


class OpenRequest(msgspec.Struct):
    """A model request without an end."""

    seq: int
    epoch: int
    attempt: int
    model: str
    reserved_pico: int | None


class Failure(msgspec.Struct):
    """How the latest attempt failed, until a response comes."""

    at_us: int
    attempt: int
    kind: str
    message: str
    retry_after_s: float | None


class State(msgspec.Struct):
    """Everything that `decide` looks at.

    `pending` are messages that no request has taken in yet; `unseen` is set while the latest results
    have not been shown to the model. `failure` is of the latest attempt until a response comes; `tries`
    counts the failed attempts of this shift. `interrupted` and `cancelled` are positions, 0 when not asked.
    An interrupt holds until the next request, which only a later message brings about (S14).
    `hands_known` are the incarnations that were not given back, the lost ones too: they may have to
    testify, and leave something behind. A shift that ends clears them away first.
    `seen` maps a path to the digest under which the model knows its content (S18). `ended` is the
    latest end of a shift, until something new arrives.
    """

    session_id: str
    seq: int = 0
    hash: bytes = b""
    epoch: int = 0
    created: SessionCreated | None = None
    limits: Limits = Limits()
    window: list[Item] = []
    window_tokens: int = 0
    pending: list[UserItem] = []
    unseen: bool = True
    request: OpenRequest | None = None
    failure: Failure | None = None
    tries: int = 0
    responses: int = 0
    calls: list[Call] = []
    hands: HandsProvisioned | None = None
    hands_known: dict[str, HandsProvisioned] = {}
    seen: dict[str, str] = {}
    interrupted: int = 0
    cancelled: int = 0
    in_shift: bool = False
    ended: ShiftEnded | None = None
    usage: Usage = Usage()
    cost_pico: int = 0
    unpriced: bool = False

    def open_calls(self) -> list[Call]:
        """Calls of the latest response that have not ended, in order."""
        return [call for call in self.calls if call.end is None]

    def call(self, call_id: str) -> Call:
        """The call with that id, of the latest response. Raises `KeyError`."""
        for call in self.calls:
            if call.call_id == call_id:
                return call
        raise KeyError(call_id)
