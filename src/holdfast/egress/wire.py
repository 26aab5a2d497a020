"""What the proxy is told: at its start through its standard input, later through its control socket."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.session import Destination, EgressPolicy


class Orders(msgspec.Struct, frozen=True):
    """What holds from now on. `vault` is a vault's handover, which may have values in it: it goes through pipes and
    our own sockets only. `wary` holds all secrets once
    strangers were read. `uids` may connect. `registries` is what the policy's word for them stands for.
    """

    policy: EgressPolicy
    vault: bytes
    placeholders: dict[str, str]
    held: tuple[str, ...] = ()
    wary: bool = False
    uids: tuple[int, ...] = ()
    registries: tuple[Destination, ...] = ()


class Launch(msgspec.Struct, frozen=True):
    """All that a proxy needs. `folder` and `session_id` say where its things are.

    `network` is what its program makes its `Network` of. `bundle` is a file of certificates to trust outside.
    `through` is the network's own proxy, `host:port`, empty for none. It ends `idle_s` after the last connection, and
    after `longest_s` as soon as nothing is under way.
    """

    folder: str
    session_id: str
    orders: Orders
    network: str = ""
    bundle: str = ""
    through: str = ""
    idle_s: float = 900.0
    longest_s: float = 14 * 86_400.0


class Ready(msgspec.Struct, frozen=True):
    """How the start went, or why not."""

    ok: bool
    problem: str = ""
    pid: int = 0


class Ask(msgspec.Struct, frozen=True):
    """One question over the control socket."""

    verb: Literal["hello", "change", "notes", "close"]
    orders: Orders | None = None
    after: int = 0


class Reply(msgspec.Struct, frozen=True):
    """Its answer."""

    ok: bool
    problem: str = ""
    pid: int = 0


LINE_MAX = 8 << 20
"""Bytes in a question at most."""
