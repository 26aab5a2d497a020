"""Undo: a session's workspace as it was after an earlier event, by a user, while no process runs the session.

The present files are kept first, so an undo can be undone. Files change before the event that says so: after a kill in
between, repeating the command gives the same files and the event.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec

from holdfast.brain.points import Point
from holdfast.brain.recall import recall
from holdfast.errors import LeaseHeld, UsageError
from holdfast.facts.hands import HandsRestored, WorkspaceSnapshotted
from holdfast.facts.session import Workspace
from holdfast.hands.user import choose_user
from holdfast.log.base import Index, Leases, Log, Snapshots
from holdfast.repo.base import Owner, Shelf
from holdfast.repo.put_back import put_back
from holdfast.service.posting import Poster
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds


class Store(Log, Index, Leases, Snapshots, Protocol):
    """The log as an undo needs it."""

    async def while_quiet(self, row: SessionRow, work: Callable[[], object]) -> bool:
        """See `Removals.while_quiet`."""
        ...


class Undo(msgspec.Struct, frozen=True):
    """A planned undo: the session's row, its workspace, and the snapshot of its point.

    `changed`: the workspace has changes that no snapshot has yet.
    """

    row: SessionRow
    workspace: Workspace
    point: Point
    changed: bool

    @property
    def owner(self) -> Owner:
        """The user that the session's calls run as."""
        user = choose_user(self.workspace)
        return Owner(user.uid, user.gid)


async def plan(store: Store, shelf: Shelf, kinds: Kinds, row: SessionRow, workspace: Workspace, point: Point) -> Undo:
    """Check an undo, and look at the workspace. Changes nothing. Raises `UsageError`, `LeaseHeld`."""
    if row.session_id in await store.holders():
        raise LeaseHeld(
            f"session {row.session_id} is running, and its files may change at any moment; nothing was changed: pause "
            f"it first with `holdfast pause {row.session_id}`",
            worker_id=row.holder,
        )
    state, _ = await recall(row.session_id, store, store, kinds)
    if state.hands_at_work():
        raise UsageError(
            f"jobs or services of session {row.session_id} run in its workspace; nothing was changed: stop them first, "
            f"for example with `holdfast cancel {row.session_id}`"
        )
    if state.workspace_with or (state.hands is not None and state.hands.holds_workspace):
        raise UsageError(
            f"the workspace of session {row.session_id} is in a sandbox elsewhere, so it cannot be restored here; "
            f"nothing was changed: fork the session instead, with `holdfast fork {row.session_id} --at "
            f"{point.state.seq}`"
        )
    undo = Undo(row, workspace, point, False)
    now = await shelf.look(row.session_id, Path(workspace.path), user=undo.owner)
    return msgspec.structs.replace(undo, changed=now.snapshot != state.snapshot)


async def carry_out(undo: Undo, store: Store, shelf: Shelf, poster: Poster, aside: Path) -> int:
    """Restore the workspace, and record it. Returns the event after which the files were as they are now.

    `aside` is a folder for copies, which is removed. Raises `LeaseHeld` if the session moved on meanwhile.
    """
    row, point, folder, owner = undo.row, undo.point, Path(undo.workspace.path), undo.owner
    await anyio.to_thread.run_sync(partial(shutil.rmtree, aside, ignore_errors=True))  # of a killed undo
    kept = await shelf.keep(row.session_id, folder, row.head, user=owner)
    before = row.head
    if undo.changed:
        fact = WorkspaceSnapshotted(through_seq=before, snapshot=kept.snapshot, files=kept.files, bytes=kept.bytes)
        await poster.post(row.session_id, fact)
        row = await store.find(row.session_id)
    try:
        for name, snapshot in (("now", kept.snapshot), ("then", point.kept)):
            await shelf.restore(snapshot, aside / name, user=owner)
        work = partial(put_back, folder, aside / "now", aside / "then")
        if not await store.while_quiet(row, work):
            raise LeaseHeld(
                f"session {row.session_id} went on meanwhile; no file was changed: pause it, and try again",
                worker_id=row.holder,
            )
    finally:
        await anyio.to_thread.run_sync(partial(shutil.rmtree, aside, ignore_errors=True))
    kept = await shelf.keep(row.session_id, folder, row.head + 1, user=owner)
    content = (
        f"[The user restored the workspace as it was after event {point.kept_seq} of the log. What was done to its "
        "files after that is gone. Look at it before you go on; files have to be read again.]"
    )
    restored = HandsRestored(hands_id="", snapshot=kept.snapshot, through_seq=point.kept_seq, content=content)
    receipt = await poster.post(row.session_id, restored)
    fact = WorkspaceSnapshotted(through_seq=receipt.seq, snapshot=kept.snapshot, files=kept.files, bytes=kept.bytes)
    await poster.post(row.session_id, fact)
    return before
