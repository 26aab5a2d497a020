"""The files of a session's workspace at an event: changes since then, and a restored copy (S22)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.trust_prompt import can_ask, confirmed
from holdfast.brain.points import Point, point_at
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Workspace
from holdfast.hands.user import choose_user
from holdfast.ids import new_session_id
from holdfast.repo.base import Change, Owner, Shelf
from holdfast.service import undo as service
from holdfast.service.event_lines import counted
from holdfast.session.context.text import harmless
from holdfast.session.rows import SessionRow

NOW = -1
"""The position that means the current state of the workspace."""

SHOWN = 200
"""Maximum number of changed files that are listed."""

SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def shelf_of(runtime: Runtime) -> Shelf:
    """The store of workspace snapshots. Raises `CannotRunSafely` without one."""
    if runtime.shelf is None:
        raise CannotRunSafely(
            "workspaces are kept with git, and there is none on this machine, so the files of a point cannot be had; "
            "install git: from then on they are kept"
        )
    return runtime.shelf


def files_as_of(point: Point) -> str:
    """Describe the snapshot of the files at an event."""
    if not point.kept:
        later = f"; first kept after event {point.later_seq}" if point.later_seq else ""
        why = f" ({harmless(point.trouble)})" if point.trouble else ""
        return f"not kept{why}{later}"
    ran = ", ".join(f"{call.name} {call.call_id}" for call in point.unkept)
    return f"kept after event {point.kept_seq}" + (f"; not in it: {ran}" if ran else "")


async def changes(runtime: Runtime, row: SessionRow, point: Point, to: int, workspace: Workspace) -> list[Change]:
    """The changes in the workspace from this event to another one, or to the current state."""
    async with _snapshots(runtime, row, point, to, workspace) as (before, after):
        return await shelf_of(runtime).changes(before, after)


async def diff(runtime: Runtime, row: SessionRow, point: Point, to: int, workspace: Workspace) -> str:
    """The same changes as a patch in git's form."""
    async with _snapshots(runtime, row, point, to, workspace) as (before, after):
        return await shelf_of(runtime).diff(before, after)


@contextlib.asynccontextmanager
async def _snapshots(
    runtime: Runtime, row: SessionRow, point: Point, to: int, workspace: Workspace
) -> AsyncIterator[tuple[str, str]]:
    """Yield the snapshots of an event and of another one, or of the current state, which is kept for the block."""
    before, shelf = _kept(row, point), shelf_of(runtime)
    if to != NOW:
        yield before, _kept(row, await point_at(runtime.store, row, to, runtime.kinds))
        return
    look = new_session_id(runtime.intake.clock.now_us(), runtime.intake.entropy)
    user = choose_user(workspace)
    try:
        now = await shelf.keep(look, Path(workspace.path), 1, user=Owner(user.uid, user.gid))
        yield before, now.snapshot
    finally:
        with contextlib.suppress(CannotRunSafely):
            await shelf.forget(look)


async def undo(call: Call, runtime: Runtime, row: SessionRow, point: Point, workspace: Workspace) -> None:
    """Restore the workspace as it was at the point, after a question if it has changes that no snapshot has."""
    shelf, then = shelf_of(runtime), _kept(row, point)
    planned = await service.plan(runtime.store, shelf, runtime.kinds, row, workspace, point)
    found = await changes(runtime, row, point, NOW, workspace)
    if not found and not planned.changed:  # otherwise a killed undo has yet to be recorded
        call.say(f"nothing to undo: the files are as they were after event {point.kept_seq}")
        return
    if found and planned.changed and not call.args.yes:
        last = f"{workspace.path} has changes that no snapshot has: they may be yours"
        if not can_ask(call):
            raise UsageError(f"{last}; nothing was changed: add --yes to undo them too (they are kept first)")
        call.note(f"{last}. They are kept first.")
        if not await confirmed(f"Undo {counted(len(found), 'change')}?"):
            call.note("nothing was changed")
            return
    aside = runtime.home.path / "removing" / f"undo-{row.session_id}"
    back = await service.carry_out(planned, runtime.store, shelf, runtime.intake, aside)
    if call.json:
        call.emit({"type": "undone", "snapshot": then, "snapshot_seq": point.kept_seq, "back_seq": back})
    else:
        call.say(f"{counted(len(found), 'change')} undone: the files are as they were after event {point.kept_seq}")
        call.note(f"Take it back with `{call.typed('undo', name_of(row), '--to', str(back))}`.")


async def restore(call: Call, runtime: Runtime, row: SessionRow, point: Point, folder: str) -> None:
    """Restore the files of the point into an empty folder."""
    if not folder:
        raise UsageError("--restore '' names no folder; for example: --restore ./then")
    path = Path(folder).absolute()
    done = await shelf_of(runtime).restore(_kept(row, point), path)
    if call.json:
        restored = {"folder": str(path), "files": done.files, "bytes": done.bytes, "snapshot_seq": point.kept_seq}
        call.emit({"type": "restored", **restored})
    else:
        call.say(f"{path} has {counted(done.files, 'file')}, as they were after event {point.kept_seq}")


def show_changes(call: Call, found: list[Change]) -> None:
    """Print the changes, ordered by path."""
    if call.json:
        for change in found:
            call.emit({"type": "change", "path": change.path, "kind": change.kind})
        return
    for change in found[:SHOWN]:
        call.say(f"{SIGNS[change.kind]} {harmless(change.path)}")
    if len(found) > SHOWN:
        call.note(f"and {len(found) - SHOWN} more; --json names them all")
    if not found:
        call.say("no file differs")


def _kept(row: SessionRow, point: Point) -> str:
    if not point.kept:
        name, first = row.session_id, point.later_seq
        if not first:
            raise UsageError(f"session {name} has kept no files, since no call used its workspace; nothing was changed")
        raise UsageError(
            f"the files of session {name} after event {point.state.seq} were not kept; nothing was changed: they were "
            f"first kept after event {first}"
        )
    return point.kept
