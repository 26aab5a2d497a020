"""Acts of a duty that watches: polls of its sources, and alerts. Each is one transaction (S4)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.errors import CannotRunSafely, HandsError, SourceError, UsageError
from holdfast.facts.base import Fact
from holdfast.facts.duty import AlertCleared, AlertRaised, SourcePolled, TriggerOffered
from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded
from holdfast.hands.base import ExecRequest, HandsSpec
from holdfast.ids import new_hands_id
from holdfast.kinds.duty.actions import ClearAlert, PollSource, RaiseAlert
from holdfast.kinds.duty.alerts import is_open
from holdfast.kinds.duty.conductor import is_held
from holdfast.kinds.duty.fold import SourceState, of_duty
from holdfast.session.context.text import action_digest
from holdfast.session.state import State
from holdfast.sources.command import Output
from holdfast.sources.opening import open_source
from holdfast.sources.settings import KINDS, DirectorySettings, parse_settings

NOTES_MAX, NOTE_CHARACTERS = 10, 500
"""Most notes of a poll in its event, and most characters of one."""

OUT = "poll.out"
"""File in the workspace of a command with its output."""


async def poll(shift: Shift, action: PollSource) -> None:
    """Read a source, and append its new events and its cursor in one transaction.

    An event whose key was offered before is dropped (S3). The result of a poll is a fact: it holds although messages
    arrived meanwhile.
    """
    own = of_duty(shift.state)
    trigger = next(each for each in own.duty.triggers if each.name == action.trigger)
    cursor = own.sources.get(trigger.name, SourceState()).cursor
    try:
        settings = parse_settings(trigger.kind, trigger.settings)
        doors = shift.doors
        source = open_source(settings, clock=doors.clock, run=_Sandbox(shift), secret=doors.secret)
        polled = await source.poll(cursor, action.limit)
    except (SourceError, CannotRunSafely, UsageError, HandsError) as error:
        await shift.fact(SourcePolled(trigger=trigger.name, cursor=cursor, failure=str(error)[:NOTE_CHARACTERS]))
        return
    now_us = doors.clock.now_us()
    duty_id = shift.state.session_id
    posts = [
        shift.post_to(
            duty_id,
            offer_key(trigger.name, each.key),
            TriggerOffered(
                trigger=trigger.name, key=f"{trigger.name}:{each.key}", time_us=each.at_us or now_us, data=each.data
            ),
            actor=f"source:{trigger.name}",
        )
        for each in polled.events
    ]
    refused = [f"refused: {each.reason}: {each.excerpt}" for each in polled.rejected]
    notes = [polled.note, *refused] if polled.note else refused
    more = [f"{len(notes) - NOTES_MAX} more"] if len(notes) > NOTES_MAX else []
    told = tuple(note[:NOTE_CHARACTERS] for note in (*notes[:NOTES_MAX], *more))
    fact = SourcePolled(trigger=trigger.name, cursor=polled.cursor, more=polled.more, notes=told)
    await shift.fact(fact, posts=posts)


def watched(state: State) -> dict[str, DirectorySettings]:
    """Return the directories whose changes matter now, by trigger: none while the duty polls nothing."""
    own = of_duty(state)
    if state.cancelled or state.paused or is_held(own):
        return {}
    found = {each.name: each for each in own.duty.triggers if KINDS.get(each.kind) is DirectorySettings}
    return {name: msgspec.convert(each.settings, DirectorySettings) for name, each in found.items()}


def offer_key(trigger: str, key: str) -> str:
    """Return the key of the post that offers an event: one with the same key is dropped."""
    return f"offer:{trigger}:{key}"


class _Sandbox:
    """Runs the command of a source in hands of its own, in an empty workspace without network."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift

    async def __call__(self, command: str, env: dict[str, str], timeout_s: float, out_bytes: int) -> Output:
        """See `sources.command.Run`."""
        doors, created = self._shift.doors, self._shift.state.created
        assert created is not None
        hands_id = new_hands_id(doors.clock.now_us(), doors.entropy)
        workspace = doors.workspace(f"{self._shift.state.session_id}-poll", created.workspace)
        spec = HandsSpec(
            session_id=self._shift.state.session_id,
            hands_id=hands_id,
            workspace=workspace,
            read_only=workspace.read_only,
            env={**workspace.env, **env},
            policy=created.hands,
        )
        try:
            hands = await doors.hands.provision(spec, self._shift.fence)
            try:
                request = ExecRequest("bash", {"command": f"{{ {command}\n}} > {OUT}"}, timeout_s, output_cap=4_000)
                await hands.start(self._shift.fence, f"{hands_id}.poll", request)
                result = await hands.wait(self._shift.fence, f"{hands_id}.poll")
            finally:
                with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
                    await hands.release(self._shift.fence)
            out = await anyio.to_thread.run_sync(_read, Path(workspace.path, OUT), out_bytes + 1)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(doors.discard, workspace)
        return Output(
            None if result.timed_out else result.exit_code, out[:out_bytes], result.output, len(out) > out_bytes
        )


def _read(path: Path, size: int) -> bytes:
    """Read the beginning of a file that a command wrote; nothing of a link or of anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read(size)


async def raise_alert(shift: Shift, action: RaiseAlert) -> None:
    """Raise an alert, with its inbox item, whose notices go to the targets of its route."""
    own, state = of_duty(shift.state), shift.state
    alert = next(each for each in own.duty.alerts if each.name == action.alert)
    item: ApprovalRequested = new_item(
        shift,
        kind="escalation",
        title=f"{alert.severity}: {alert.name} ({own.duty.name})",
        action=f"{action.detail}\n\nApprove or deny: acknowledge the alert; it stays silent until it is cleared. See "
        f"also: holdfast duty history {own.duty.name}",
        action_digest=action_digest("alert", {"duty": state.session_id, "alert": alert.name, "head": state.seq}),
        why=f"an alert of the duty {own.duty.name}",
        default=None,
        notify=tuple(each for each in alert.route if each != "inbox"),
    )
    await shift.decision(
        item, AlertRaised(alert=alert.name, severity=alert.severity, detail=action.detail, item_id=item.item_id)
    )


async def clear_alert(shift: Shift, action: ClearAlert) -> None:
    """Clear an alert, and close its inbox item if it has no answer."""
    standing = of_duty(shift.state).alerts[action.alert]
    over = ApprovalSuperseded(item_id=standing.item_id, reason=f"the alert was cleared: {action.detail}")
    facts: list[Fact] = [AlertCleared(alert=action.alert, detail=action.detail)]
    await shift.decision(*facts, *([over] if is_open(shift.state, standing) else []))
