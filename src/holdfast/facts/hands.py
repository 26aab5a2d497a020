"""The lives of hands: each incarnation has an identity (S8)."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact, Isolation


class HandsProvisioned(Fact, frozen=True, tag="hands.provisioned"):
    """Hands were made. Only this incarnation can answer for a call dispatched to it.

    `address` is how its supervisor is reached. `root` is the workspace's path inside. `isolation`
    says per kind (files, network, processes, system calls, memory …) how hard the wall is. `weak`, when not
    empty, says what it lacks of a sandbox.
    `environment` is the digest of the layer that it stands on. `holds_workspace` says that the work is where the hands
    are, and the folder here is a copy that is brought up to date at each snapshot.
    """

    hands_id: str
    provider: str
    host_id: str
    boot_id: str
    address: str
    workspace: str
    root: str
    uid: int
    isolation: dict[str, Isolation] = {}
    weak: str = ""
    environment: str = ""
    holds_workspace: bool = False


class HandsLost(Fact, frozen=True, tag="hands.lost"):
    """An incarnation is gone without having been released."""

    hands_id: str
    reason: str


class HandsRestored(Fact, frozen=True, tag="hands.restored"):
    """New hands began with the workspace as it was kept at `through_seq`; what was done after that is gone.

    `unkept` are calls after that which may have changed it. `content` is what the model is told.
    """

    hands_id: str
    snapshot: str
    through_seq: int
    content: str
    unkept: tuple[str, ...] = ()


class HostFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One file, folder or link of a workspace, by its path from the root (`.` for the root itself).

    `kind` says what runs code because of it.
    """

    path: str
    kind: str


class HandsHostFiles(Fact, frozen=True, tag="hands.host_files"):
    """Files of the workspace that make programs of the host run code.

    `before` the session's first hands: what stood there. Later, once hands are given back or lost: what is new since.
    `cut` says that there are more, or that not everything was looked at.
    """

    hands_id: str
    files: tuple[HostFile, ...] = ()
    before: bool = False
    cut: bool = False


class HandsReleased(Fact, frozen=True, tag="hands.released"):
    """An incarnation was given back."""

    hands_id: str
