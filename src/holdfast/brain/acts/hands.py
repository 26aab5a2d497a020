"""Creation, fencing, and release of hands, and workspace snapshots (S8, S9, S22)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import anyio
import msgspec

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.acts import environment as environment_act
from holdfast.brain.acts import results
from holdfast.brain.shift import Shift
from holdfast.errors import HandsError, HandsLost, HoldfastError, Refused
from holdfast.facts.hands import (
    HandsHostFiles,
    HandsReleased,
    HandsRestored,
    HostFile,
    WorkspaceSnapshotted,
)
from holdfast.facts.hands import HandsLost as HandsLostFact
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ServiceEnded
from holdfast.hands import host_files
from holdfast.hands.base import Hands, HandsSpec
from holdfast.hands.user import choose_user
from holdfast.ids import new_hands_id
from holdfast.repo.base import Kept, Owner
from holdfast.session.state import ResponseItem, State

PATH_MAX = 1000
"""Maximum recorded characters of a path."""

TIDY_S = 100.0
"""Longest time that the snapshot store is folded, in seconds: other processes wait 120 s for it."""

MAKES = 3
"""Attempts to create hands that are stopped while they start."""


def begin_provisioning(shift: Shift) -> None:
    """Start creating hands in the background, unless they exist or are being created."""
    if shift.state.hands is None and shift.provisioned is None:
        shift.provisioned = anyio.Event()
        shift.background.start_soon(_provision, shift)


async def provision(shift: Shift) -> None:
    """Ensure that hands exist. Raises `SandboxUnavailable` or `HandsError`."""
    begin_provisioning(shift)
    if shift.provisioned is not None:
        await shift.provisioned.wait()
    error, shift.provision_error = shift.provision_error, None
    if error is not None:
        shift.provisioned = None
        raise error


async def _provision(shift: Shift) -> None:
    assert shift.provisioned is not None
    done = shift.provisioned
    hands: Hands | None = None
    try:
        stood = await _host_files(shift, "")
        hands, restored = await _make(shift)
        there = [msgspec.structs.replace(stood, hands_id=hands.identity.hands_id)] if stood is not None else []
        await shift.fact(hands.identity, *((restored,) if restored is not None else ()), *there)
        shift.hands = hands
        await environment_act.start_services(shift, hands)
        shift.provisioned = None
    except BaseException as error:
        if hands is not None:
            with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
                await hands.release(shift.fence)
        if not isinstance(error, Exception):
            raise
        shift.provision_error = error  # passed on to any task that waits for the hands
    finally:
        done.set()


async def _make(shift: Shift) -> tuple[Hands, HandsRestored | None]:
    """Create hands, and retry if they are stopped while they start."""
    for _ in range(MAKES - 1):
        with contextlib.suppress(HandsLost):
            return await environment_act.provision(shift, await _spec(shift))
    return await environment_act.provision(shift, await _spec(shift))


async def _spec(shift: Shift) -> HandsSpec:
    assert shift.state.created is not None
    workspace = shift.state.created.workspace
    spec = HandsSpec(
        session_id=shift.state.session_id,
        hands_id=new_hands_id(shift.doors.clock.now_us(), shift.doors.entropy),
        workspace=workspace,
        read_only=workspace.read_only,
        env=workspace.env,
        policy=shift.state.created.hands,
        on_news=shift.doors.on_news(shift.state.session_id),
        network=await egress_act.network(shift),
        guarded=await shift.acts.guarded(),
    )
    return await environment_act.dress(shift, spec)


async def fence(shift: Shift) -> None:
    """At the start of a shift, fence off every earlier brain at the hands (S9), or record the hands as lost."""
    identity = shift.state.hands
    if identity is None:
        return
    hands = await shift.doors.hands.attach(identity)
    try:
        await hands.fence(shift.fence)
        shift.hands = hands
    except HandsLost as gone:
        used = {call.hands_id for call in shift.state.open_calls() if call.attempt} | shift.state.hands_at_work()
        if _keeps_warm(shift.state) and identity.hands_id not in used:
            await hands.release(shift.fence)  # warm hands that exited when idle: it counts as a release
            await _gave_back(shift, identity.hands_id)
        else:
            await lost(shift, identity.hands_id, str(gone))


async def _gave_back(shift: Shift, hands_id: str) -> None:
    """Record the release of hands, and the end of the services that exist only with hands."""
    gone = [
        ServiceEnded(name=each.name, hands_id=hands_id, reason="its hands were given back")
        for each in shift.state.services.values()
        if each.hands_id == hands_id
    ]
    found = await _host_files(shift, hands_id)
    await shift.fact(*gone, HandsReleased(hands_id=hands_id), *((found,) if found is not None else ()))


async def _lost(shift: Shift, hands_id: str, reason: str) -> None:
    found = await _host_files(shift, hands_id)
    await shift.fact(HandsLostFact(hands_id=hands_id, reason=reason), *((found,) if found is not None else ()))


async def _host_files(shift: Shift, hands_id: str) -> HandsHostFiles | None:
    """Return the workspace files that make programs of the host run code and that the log does not have yet."""
    state = shift.state
    if state.created is None or not os.path.isdir(state.created.workspace.path):
        return None
    found = await anyio.to_thread.run_sync(host_files.find, state.created.workspace.path)
    kinds = {os.fsencode(path).decode("utf-8", "replace")[:PATH_MAX]: kind for path, kind in found.kinds.items()}
    new = tuple(HostFile(path, kind) for path, kind in kinds.items() if path not in state.host_files)
    if not new:
        return None
    return HandsHostFiles(hands_id=hands_id, files=new, before=not state.had_hands, cut=not found.whole)


def _keeps_warm(state: State) -> bool:
    return state.created is not None and state.created.hands.warm > 0


def kept(state: State, ended: ShiftEnded) -> bool:
    """Return True if the hands stay when a shift ends: a job or service runs in them, or they are kept warm."""
    if state.hands is None or ended.status != "parked":
        return False
    return state.hands.hands_id in state.hands_at_work() or _keeps_warm(state)


async def current(shift: Shift) -> Hands:
    """Return the session's live hands. Raises `HandsLost` if the state has none."""
    if shift.provisioned is not None:
        await provision(shift)  # the hands exist, but their services may still be starting
    identity = shift.state.hands
    if identity is None:
        raise HandsLost("the session has no hands")
    if shift.hands is None or shift.hands.identity.hands_id != identity.hands_id:
        shift.hands = await shift.doors.hands.attach(identity)
    return shift.hands


async def lost(shift: Shift, hands_id: str, reason: str) -> None:
    """Record the loss of hands, once."""
    shift.hands = None
    if shift.state.hands is not None and shift.state.hands.hands_id == hands_id:
        await _lost(shift, hands_id, reason)
        await results.look(shift)


async def clear_lost(shift: Shift) -> bool:
    """Remove the remains of lost hands once no open call needs their journal (S10).

    Hands in which work continues, and those that the session keeps, stay. Returns True if a workspace was copied back
    from lost hands, which is an event.
    """
    used = shift.state.hands_at_work() | ({shift.state.hands.hands_id} if shift.state.hands is not None else set())
    for identity in [each for each in shift.state.hands_known.values() if each.hands_id not in used]:
        hands = await shift.doors.hands.attach(identity)
        held = shift.state.workspace_with == identity.hands_id
        with contextlib.suppress(HandsError):  # a leftover that cannot be removed is harmless
            if held:
                await environment_act.bring_back(shift, hands)
            await hands.release(shift.fence)
            if held:
                await _gave_back(shift, identity.hands_id)
                return True
    return False


async def give_back(shift: Shift) -> None:
    """Release the hands, if any: a parked or finished session has no running process."""
    if shift.provisioned is not None:
        await shift.provisioned.wait()
        shift.provisioned = shift.provision_error = None
    identity = shift.state.hands
    if identity is None:
        return
    hands = await current(shift)
    shift.hands = None
    try:
        await hands.release(shift.fence)
        await _gave_back(shift, identity.hands_id)
    except HandsLost as gone:
        await _lost(shift, identity.hands_id, str(gone))
    except HandsError as stuck:
        await _lost(shift, identity.hands_id, f"not released: {stuck}")


def snapshot_wanted(state: State) -> bool:
    """Return True if the workspace may have changed since its last snapshot."""
    return state.mutated_seq > state.snapshot_seq


def begin_snapshot(shift: Shift) -> None:
    """Take a snapshot in the background: during a model request, no call runs and nothing writes."""
    if shift.doors.shelf is None or shift.keeping is not None or not snapshot_wanted(shift.state):
        return
    shift.keeping = anyio.Event()
    shift.background.start_soon(_snapshot_beside, shift, _snapshot_through(shift.state))


async def settle_snapshot(shift: Shift) -> None:
    """Wait for a running snapshot before a call writes, and take the very first one."""
    if shift.keeping is not None:
        await shift.keeping.wait()
        return
    if shift.doors.shelf is not None and not shift.state.snapshot_seq and not shift.state.snapshot_error:
        await _snapshot(shift, shift.state.seq)


async def snapshot_before_end(shift: Shift) -> None:
    """Take a snapshot of the final workspace before a shift ends."""
    if shift.keeping is not None:
        await shift.keeping.wait()
    if shift.doors.shelf is not None and snapshot_wanted(shift.state):
        await _snapshot(shift, _snapshot_through(shift.state))


def _snapshot_through(state: State) -> int:
    """Return the end of the latest call: no file changed after it, so the session can be forked from there on (S22)."""
    for item in reversed(state.window):
        if isinstance(item, ResponseItem):
            ended = max(item.results, default=0)
            return ended if ended > state.mutated_seq else state.seq
    return state.seq


async def _snapshot_beside(shift: Shift, seq: int) -> None:
    done = shift.keeping
    assert done is not None
    try:
        await _snapshot(shift, seq)
    finally:
        shift.keeping = None
        done.set()


async def _snapshot(shift: Shift, seq: int) -> None:
    """Take a snapshot. A failure does not stop the work: it is recorded once per run of equal reasons."""
    if shift.state.workspace_with:
        return  # lost hands hold the current workspace: the folder here is older
    try:
        kept = await take_snapshot(shift, seq)
    except Refused:
        raise
    except HoldfastError as error:
        if str(error) != shift.state.snapshot_error:
            await shift.fact(WorkspaceSnapshotted(through_seq=seq, error=str(error)))
        return
    fact = WorkspaceSnapshotted(through_seq=seq, snapshot=kept.snapshot, files=kept.files, bytes=kept.bytes)
    await shift.fact(fact)
    await thin(shift, kept)


async def thin(shift: Shift, kept: Kept) -> None:
    """Drop the earlier half of the session's snapshots when they have grown beyond its disk limit."""
    shelf, created, session_id = shift.doors.shelf, shift.state.created, shift.state.session_id
    most = created.hands.disk_bytes if created is not None else None
    if shelf is None or most is None or kept.grown <= most:
        return
    names = (await shelf.kept(session_id)).get(session_id, [])
    with contextlib.suppress(HoldfastError):  # the next snapshot tries again
        await shelf.thin({session_id: names[: len(names) // 2]})
        await shelf.tidy(timeout_s=TIDY_S)


async def take_snapshot(shift: Shift, seq: int) -> Kept:
    """Take a snapshot of the workspace after every event up to `seq`, without recording an event."""
    shelf, state = shift.doors.shelf, shift.state
    assert shelf is not None
    assert state.created is not None
    if state.hands is not None and state.hands.holds_workspace:
        await environment_act.bring_back(shift, await current(shift))
    workspace = state.created.workspace
    user = choose_user(workspace)
    return await shelf.keep(state.session_id, Path(workspace.path), seq, user=Owner(user.uid, user.gid))
