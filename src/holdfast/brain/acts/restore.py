"""Hands whose workspace was lost with those before them begin with what was kept of it, and the model is told (S11)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.brain.shift import Shift
from holdfast.errors import CannotRunSafely, UsageError, WorkspaceGone
from holdfast.facts.hands import HandsRestored
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Workspace
from holdfast.facts.tool import ToolDispatched
from holdfast.hands.base import Carrying, Hands, HandsSpec
from holdfast.hands.user import choose_user, make_ready
from holdfast.repo.base import Owner

NAMED_MAX = 40
"""Calls that the model is told of by name."""


async def provision(shift: Shift, spec: HandsSpec) -> tuple[Hands, HandsRestored | None]:
    """New hands on the session's workspace, wherever it is now; with what to record when it is an earlier one.

    Raises `WorkspaceGone` when it is nowhere, neither as a folder nor as a snapshot that may be put in its place.
    """
    continues = shift.state.workspace_with
    try:
        return await shift.doors.hands.provision(msgspec.structs.replace(spec, continues=continues), shift.epoch), None
    except WorkspaceGone:
        hands = await shift.doors.hands.provision(spec, shift.epoch)
    except UsageError:
        if not await _put_back(shift, spec.workspace):
            raise
        hands = await shift.doors.hands.provision(spec, shift.epoch)
    return hands, await _told(shift, hands.identity.hands_id)


async def _put_back(shift: Shift, workspace: Workspace) -> bool:
    """Put the last snapshot where the workspace was; False when the workspace is there and something else is wrong."""
    folder, state = Path(workspace.path), shift.state
    if folder.exists() or not state.mutated_seq:
        return False
    if shift.doors.shelf is None or not state.snapshot or not workspace.disposable:
        raise WorkspaceGone(
            f"the workspace {folder} is not there any more, and the work was only there; nothing was started: put it "
            f"back as it was, or fork the session from a snapshot (`holdfast fork {state.session_id}`)"
        )
    try:
        folder.mkdir(mode=0o755)
        user = choose_user(workspace)
        make_ready(workspace, user)
    except OSError as error:
        raise CannotRunSafely(f"the workspace {folder} cannot be made again: {error.strerror}") from error
    await shift.doors.shelf.restore(state.snapshot, folder, user=Owner(user.uid, user.gid))
    return True


async def _told(shift: Shift, hands_id: str) -> HandsRestored:
    state = shift.state
    unkept = await _unkept(shift)
    named = ", ".join(f"{name} {call_id}" for call_id, name in list(unkept.items())[:NAMED_MAX])
    gone = f"What these calls did after that is gone: {named}." if unkept else "No call changed it after that."
    content = (
        "[The sandbox was lost, and the workspace with it. The workspace is now as it was kept after event "
        f"{state.snapshot_seq} of the log. {gone} Look at it before you go on; files have to be read again.]"
    )
    return HandsRestored(
        hands_id=hands_id,
        snapshot=state.snapshot,
        through_seq=state.snapshot_seq,
        content=content,
        unkept=tuple(unkept),
    )


async def _unkept(shift: Shift) -> dict[str, str]:
    """The calls after the last snapshot that may have changed the workspace, with their tools' names."""
    created = shift.state.created
    assert created is not None
    names: dict[str, str] = {}
    for event in await shift.doors.log.read(shift.state.session_id):
        if isinstance(event.fact, AgentToolUse):
            names[event.fact.call_id] = event.fact.name
    out: dict[str, str] = {}
    for event in await shift.doors.log.read(shift.state.session_id, after=shift.state.snapshot_seq):
        fact = event.fact
        if isinstance(fact, ToolDispatched) and not fact.place:
            name = names.get(fact.call_id, "")
            tool = shift.state.tool(name)
            if tool is None or not tool.read_only:
                out[fact.call_id] = name
    return out


async def bring_back(shift: Shift, hands: Hands) -> None:
    """Have the workspace here what it is where the hands are."""
    if hands.identity.holds_workspace and isinstance(hands, Carrying):
        await hands.bring_back(shift.epoch)
