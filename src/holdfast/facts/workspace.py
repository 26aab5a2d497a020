"""The state of the workspace at a point of the log (S22)."""

from __future__ import annotations

from holdfast.facts.base import Fact


class WorkspaceSnapshotted(Fact, frozen=True, tag="workspace.snapshotted"):
    """The workspace was kept as it is after every event up to `through_seq`.

    `snapshot` names it in the snapshot store of this host; `files` and `bytes` are its size. With `error`
    it could not be kept, and why.
    """

    through_seq: int
    snapshot: str = ""
    files: int = 0
    bytes: int = 0
    error: str = ""
