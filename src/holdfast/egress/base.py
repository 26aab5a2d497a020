"""The egress interface: one proxy for each session, on a Unix socket, in a process that outlives the brain."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.facts.hands import EgressSeen
from holdfast.facts.session import EgressPolicy


class Gateway(msgspec.Struct, frozen=True):
    """Network access for the sandbox of one session.

    `socket` is the Unix socket of its proxy. `env` has the variables that make programs in the sandbox use it, with
    placeholders of secrets; `files` maps paths in the sandbox to the content of files there.
    """

    socket: str
    port: int
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}


class Notes(msgspec.Struct, frozen=True):
    """Notes of a proxy after a position of its journal: kinds of requests with their counts.

    `dropped` counts requests that were left out for lack of space.
    """

    through: int
    seen: tuple[EgressSeen, ...] = ()
    dropped: int = 0


class Egress(Protocol):
    """Open, change, and close network access of sessions. Every verb may be repeated."""

    async def open(
        self, session_id: str, policy: EgressPolicy, *, uid: int, held: tuple[str, ...] = (), wary: bool = False
    ) -> Gateway:
        """Apply the policy to the session's proxy, and start one if none is running.

        Only processes of `uid`, and of Holdfast's own user, may connect. Requests that would use a secret named in
        `held` are refused and noted as held until a user approves. While `wary`, the first allowed request to
        anything but a package registry counts as reading untrusted text: from then on all secrets are held.
        Raises `EgressUnavailable`.
        """
        ...

    async def change(
        self, session_id: str, policy: EgressPolicy, *, held: tuple[str, ...] = (), wary: bool = False
    ) -> None:
        """Apply the policy to new requests of the running proxy; do nothing without one."""
        ...

    async def notes(self, session_id: str, after: int) -> Notes:
        """Return the notes after a position, including those of a proxy that died."""
        ...

    async def close(self, session_id: str) -> None:
        """End the proxy; its journal stays until `forget`."""
        ...

    async def forget(self, session_id: str) -> None:
        """Remove all data of the session."""
        ...
