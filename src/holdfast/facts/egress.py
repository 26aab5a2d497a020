"""What hands said to the world outside, and what they were refused."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact


class EgressSeen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Requests of one kind: to which host and port, and what became of them.

    `held` ones would have used the secret `secret` and wait for a person. `reason` says why it was refused. `method`
    and `path` are known of requests that can be read; a path has no query. `registry` says that the host is allowed as
    one of the package registries. Sizes are in bytes.
    """

    verdict: Literal["allowed", "refused", "held"]
    host: str
    port: int
    count: int = 1
    reason: str = ""
    method: str = ""
    path: str = ""
    secret: str = ""
    registry: bool = False
    sent: int = 0
    received: int = 0


class EgressRecorded(Fact, frozen=True, tag="egress.recorded"):
    """What the proxy of this session noted, up to the position `through` of its own journal.

    With `set_up` it is what a set-up asked for outside, its tunnels included, however the set-up ended; it has a
    journal of its own, so `through` says nothing then.
    """

    through: int
    seen: tuple[EgressSeen, ...] = ()
    dropped: int = 0
    set_up: bool = False


class EgressFailed(Fact, frozen=True, tag="egress.failed"):
    """There is no way outside now, and why; hands go on without."""

    reason: str


class SessionTainted(Fact, frozen=True, tag="session.tainted"):
    """The session has read what strangers may have written, at `evidence`: the first time since it began."""

    reason: str
    evidence: tuple[int, ...] = ()
