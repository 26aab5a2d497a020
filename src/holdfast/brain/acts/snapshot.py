"""Keeping the workspace as it is at positions of the log (S22): beside the model, and before hands are given back."""

from __future__ import annotations

from pathlib import Path

import anyio

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts import restore
from holdfast.brain.shift import Shift
from holdfast.errors import HoldfastError, Refused
from holdfast.facts.workspace import WorkspaceSnapshotted
from holdfast.hands.user import choose_user
from holdfast.repo.base import Kept, Owner
from holdfast.session.state import ResponseItem, State


def wanted(state: State) -> bool:
    """Whether the workspace may have changed since it was last kept."""
    return state.mutated_seq > state.snapshot_seq


def begin(shift: Shift) -> None:
    """Keep it in the background: while a model answers, no call runs and nothing writes."""
    if shift.doors.shelf is None or shift.keeping is not None or not wanted(shift.state):
        return
    shift.keeping = anyio.Event()
    shift.background.start_soon(_keep_and_say, shift, _through(shift.state))


async def settle(shift: Shift) -> None:
    """Before something writes: have what is being kept kept, and the very first state too."""
    if shift.keeping is not None:
        await shift.keeping.wait()
        return
    if shift.doors.shelf is not None and not shift.state.snapshot_seq and not shift.state.snapshot_error:
        await _keep(shift, shift.state.seq)


async def last(shift: Shift) -> None:
    """Before a shift ends: keep what it leaves."""
    if shift.keeping is not None:
        await shift.keeping.wait()
    if shift.doors.shelf is not None and wanted(shift.state):
        await _keep(shift, _through(shift.state))


def _through(state: State) -> int:
    """The end of the latest call: what came after it changed no file, so it can be forked from there on (S22)."""
    for item in reversed(state.window):
        if isinstance(item, ResponseItem):
            ended = max(item.results, default=0)
            return ended if ended > state.mutated_seq else state.seq
    return state.seq


async def _keep_and_say(shift: Shift, seq: int) -> None:
    done = shift.keeping
    assert done is not None
    try:
        await _keep(shift, seq)
    finally:
        shift.keeping = None
        done.set()


async def _keep(shift: Shift, seq: int) -> None:
    """What cannot be kept stops nobody: it is an event, once for each reason in a row."""
    if shift.state.workspace_with:
        return  # the work is with hands that were lost: what is here is older
    try:
        kept = await keep(shift, seq)
    except Refused:
        raise
    except HoldfastError as error:
        if str(error) != shift.state.snapshot_error:
            await shift.fact(WorkspaceSnapshotted(through_seq=seq, error=str(error)))
        return
    fact = WorkspaceSnapshotted(through_seq=seq, snapshot=kept.snapshot, files=kept.files, bytes=kept.bytes)
    await shift.fact(fact)


async def keep(shift: Shift, seq: int) -> Kept:
    """Keep the workspace as it is after every event up to `seq`. No event says so."""
    shelf, state = shift.doors.shelf, shift.state
    assert shelf is not None
    assert state.created is not None
    if state.hands is not None and state.hands.holds_workspace:
        await restore.bring_back(shift, await hands_act.current(shift))
    workspace = state.created.workspace
    user = choose_user(workspace)
    return await shelf.keep(state.session_id, Path(workspace.path), seq, user=Owner(user.uid, user.gid))
