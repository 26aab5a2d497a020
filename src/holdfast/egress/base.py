"""The door to the outside: a proxy for each session, on a unix socket, as a process that outlives the brain."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.facts.egress import EgressSeen
from holdfast.facts.session import EgressPolicy


class Gateway(msgspec.Struct, frozen=True):
    """An open way outside for the hands of one session.

    `socket` is the unix socket of its proxy. `env` are the variables that make programs inside use it, placeholders
    of secrets among them; `files` maps paths inside to the content of files that are shown there.
    """

    socket: str
    port: int
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}


class Notes(msgspec.Struct, frozen=True):
    """What a proxy noted after a position of its journal: kinds of requests with their counts.

    `dropped` is how many requests are not among them for want of room.
    """

    through: int
    seen: tuple[EgressSeen, ...] = ()
    dropped: int = 0


class Egress(Protocol):
    """Opens ways outside, changes and closes them. Every verb may be repeated."""

    async def open(
        self, session_id: str, policy: EgressPolicy, *, uid: int, held: tuple[str, ...] = (), wary: bool = False
    ) -> Gateway:
        """Have a proxy for the session under this policy; finds the one that lives, starts one otherwise.

        Only processes of `uid`, and of our own user, may connect. Requests that would use a secret named in `held` are
        refused and noted as held: a person has to say yes first. While `wary`, everything that is let through and is of
        no registry counts as read from strangers: from then on all secrets are held. Raises `EgressUnavailable`.
        """
        ...

    async def change(
        self, session_id: str, policy: EgressPolicy, *, held: tuple[str, ...] = (), wary: bool = False
    ) -> None:
        """Put the policy in force in the living proxy, for requests that begin from now on; nothing without one."""
        ...

    async def notes(self, session_id: str, after: int) -> Notes:
        """What was noted after that position, also by a proxy that died."""
        ...

    async def close(self, session_id: str) -> None:
        """End the proxy; its journal stays until `forget`."""
        ...

    async def forget(self, session_id: str) -> None:
        """Take everything about the session away."""
        ...
