"""The lives of hands: each incarnation has an identity (S8)."""

from __future__ import annotations

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


class HandsReleased(Fact, frozen=True, tag="hands.released"):
    """An incarnation was given back."""

    hands_id: str
