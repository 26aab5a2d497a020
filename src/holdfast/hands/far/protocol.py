"""Protocol between a brain and hands on another machine: one JSON object per line.

Every request can be repeated after a lost connection with the same effect: the asker chooses the ids of calls and of
hands, transfers go by position, and reading a result does not consume it.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import (
    CannotRunSafely,
    Fenced,
    HandsError,
    HandsLost,
    HoldfastError,
    SandboxUnavailable,
    StorageFull,
    UsageError,
    WorkspaceGone,
)
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import ExecRequest

PROTOCOL = 1
"""Protocol version. Both ends must have the same one, or the asker refuses."""

CHUNK = 1 << 18
"""Bytes of a transfer in one request."""

LINE_MAX = 64 << 20
"""Maximum bytes of one line."""

LOOK_S = 20.0
"""Seconds that a request for a result is held before it is answered with none."""


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Request for hands. `nonce` tells a repeated request from another one for the same id.

    `transfer` is the workspace, sent before; without one the workspace of the hands `continues` is used.
    """

    session_id: str
    hands_id: str
    nonce: str
    policy: HandsPolicy
    env: dict[str, str] = {}
    transfer: str = ""
    continues: str = ""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request; which fields count depends on the verb."""

    id: int
    verb: str
    epoch: int = 0
    identity: HandsProvisioned | None = None
    call: str = ""
    request: ExecRequest | None = None
    begin: Begin | None = None
    transfer: str = ""
    path: str = ""
    after: int = 0
    offset: int = 0
    wait_s: float = 0.0
    max_bytes: int = 0
    data: bytes = b""
    close: bool = False


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as an answer: the kind of error that the asker raises."""

    kind: str
    message: str
    current: int = 0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to the request with that id."""

    id: int
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: Trouble | None = None


class Hello(msgspec.Struct, frozen=True):
    """Identity of the other end."""

    protocol: int
    program: str
    host_id: str


class Size(msgspec.Struct, frozen=True):
    """A number of bytes, or of files."""

    size: int


class Piece(msgspec.Struct, frozen=True):
    """Part of a transfer."""

    data: bytes
    size: int


_KINDS: dict[str, type[HoldfastError]] = {
    "gone": WorkspaceGone,
    "lost": HandsLost,
    "full": StorageFull,
    "sandbox": SandboxUnavailable,
    "unsafe": CannotRunSafely,
    "usage": UsageError,
    "hands": HandsError,
}
"""From the narrowest error to the widest, where one is the base of another."""


def trouble_of(error: HoldfastError) -> Trouble:
    """Encode an error for the protocol."""
    if isinstance(error, Fenced):
        return Trouble("fenced", str(error), error.current)
    for kind, cls in _KINDS.items():
        if isinstance(error, cls):
            return Trouble(kind, str(error))
    return Trouble("hands", str(error))


def raised(trouble: Trouble, epoch: int) -> HoldfastError:
    """Return the exception for an encoded error."""
    if trouble.kind == "fenced":
        return Fenced(trouble.message, mine=epoch, current=trouble.current)
    return _KINDS.get(trouble.kind, HandsError)(trouble.message)
