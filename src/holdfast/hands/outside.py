"""How hands get to the way outside: its folder is shown inside, and a bridge in there leads a port to its socket."""

from __future__ import annotations

import os

import msgspec

from holdfast.hands.base import HandsSpec

DOOR = "/run/egress"
"""Where the folder of the socket is shown inside; the variables of a `Network` name its files there."""


class Way(msgspec.Struct, frozen=True):
    """What the agent is told: the socket as it is inside, and the port of the loopback that leads to it."""

    socket: str
    port: int


def mounts(spec: HandsSpec) -> list[str]:
    """The arguments of bwrap that show the folder of the socket, read-only."""
    if spec.network is None:
        return []
    return ["--ro-bind", os.path.dirname(spec.network.socket), DOOR]


def with_files(spec: HandsSpec) -> HandsSpec:
    """The spec with the files of its network among its own."""
    if spec.network is None or not spec.network.files:
        return spec
    return msgspec.structs.replace(spec, files={**spec.files, **spec.network.files})


def way(spec: HandsSpec) -> Way | None:
    """What the agent is told; None for hands without a network."""
    if spec.network is None:
        return None
    return Way(f"{DOOR}/{os.path.basename(spec.network.socket)}", spec.network.port)


def environment(spec: HandsSpec) -> dict[str, str]:
    """The variables of the hands' commands; those that lead outside cannot be replaced by others."""
    return {**spec.env, **(spec.network.env if spec.network is not None else {})}
