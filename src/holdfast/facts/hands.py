"""Hands, workspace snapshots, prepared environments, and network egress."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact, Isolation


class HandsProvisioned(Fact, frozen=True, tag="hands.provisioned"):
    """A sandbox was created. Only this incarnation can answer for a call dispatched to it (S8).

    `address` is the address of its supervisor, `root` the workspace's path inside. `isolation` gives the strength per
    kind (files, network, processes, system calls, memory …). `weak`, if not empty, says what it lacks compared to a
    sandbox. `environment` is the digest of its environment layer. `holds_workspace` means that the workspace lives with
    the hands, and that the local folder is a copy, updated at each snapshot.
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
    """The workspace is again as in the snapshot of `through_seq`: new hands began with it, or a user chose it.

    `hands_id` is empty if a user did. `unkept` are later calls that may have changed the workspace. `content` is shown
    to the model.
    """

    hands_id: str
    snapshot: str
    through_seq: int
    content: str
    unkept: tuple[str, ...] = ()


class HostFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One file, folder, or link of a workspace, by its path from the root (`.` for the root itself).

    `kind` names the program that runs code because of it.
    """

    path: str
    kind: str


class HandsHostFiles(Fact, frozen=True, tag="hands.host_files"):
    """Files of the workspace that make programs of the host run code.

    With `before`: those present before the session's first hands. Otherwise, once hands are released or lost: the new
    ones. `cut` means that the list or the search is incomplete.
    """

    hands_id: str
    files: tuple[HostFile, ...] = ()
    before: bool = False
    cut: bool = False


class HandsReleased(Fact, frozen=True, tag="hands.released"):
    """An incarnation was released."""

    hands_id: str


class WorkspaceSnapshotted(Fact, frozen=True, tag="workspace.snapshotted"):
    """A snapshot of the workspace was taken; it includes every event up to `through_seq` (S22).

    `snapshot` is its name in the snapshot store of this host; `files` and `bytes` are its size. `error` is the reason
    why no snapshot could be taken.
    """

    through_seq: int
    snapshot: str = ""
    files: int = 0
    bytes: int = 0
    error: str = ""


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One command of a set-up: its exit status, and the end of its output if it failed."""

    command: str
    exit_code: int | None = None
    duration_ms: float = 0.0
    output: str = ""


class EnvironmentRecorded(Fact, frozen=True, tag="environment.recorded"):
    """An environment was built, or reused from the cache (`cached`).

    `digest` covers all its inputs: commands, lock files (path to digest), packages, tool-chains, and the base system.
    `versions` are those of the tools present, `folders` its mounts. `seen` are the network requests of the set-up.
    `notes` are sentences about what was left out. `error` says why there is none; work then continues without it only
    if the session's own policy does not ask for one.
    """

    digest: str
    cached: bool = False
    steps: tuple[Step, ...] = ()
    files: dict[str, str] = {}
    packages: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    bytes: int = 0
    duration_ms: float = 0.0
    error: str = ""
    folders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: tuple[EgressSeen, ...] = ()


class EgressSeen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Network requests of one kind: their host, port, and verdict.

    `held` requests would have used the secret `secret` and wait for an approver. `reason` says why one was refused.
    `method` and `path` are known for requests that the proxy can read; a path has no query. `registry` means that the
    host is allowed as a package registry. Sizes are in bytes.
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
    """Notes of the session's proxy up to position `through` of its journal.

    With `set_up` they are the requests of a set-up, including its tunnels, however it ended; a set-up has a journal of
    its own, so `through` is then meaningless.
    """

    through: int
    seen: tuple[EgressSeen, ...] = ()
    dropped: int = 0
    set_up: bool = False


class EgressFailed(Fact, frozen=True, tag="egress.failed"):
    """The egress proxy is unavailable, and why; the sandbox continues without network."""

    reason: str


class SessionTainted(Fact, frozen=True, tag="session.tainted"):
    """The session has read untrusted content for the first time since it began, at `evidence`."""

    reason: str
    evidence: tuple[int, ...] = ()
