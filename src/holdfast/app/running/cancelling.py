"""Ending a session for good, with all below it."""

from __future__ import annotations

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.running.family import Family
from holdfast.brain.wake import wake
from holdfast.errors import EmergencyStop, LeaseHeld
from holdfast.facts.session import Workspace
from holdfast.session.rows import FIRST, SessionRow


async def workspace_of(runtime: Runtime, row: SessionRow) -> Workspace:
    """The workspace that the session was opened on."""
    (first,) = await runtime.store.read(row.session_id, after=row.origin_seq, limit=1)
    assert isinstance(first.fact, FIRST)
    return first.fact.workspace


async def cancel(call: Call) -> int:
    """Post the cancel. With no process running the session, this one ends it."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        name = name_of(row)
        if row.status == "cancelled":
            call.say(f"{name} was cancelled before")
            if call.json:
                call.emit({"session_id": row.session_id, "seq": None, "duplicate": True})
            return 0
        receipt = await runtime.intake.cancel(row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        try:
            await wake(row.session_id, runtime.doors(await workspace_of(runtime, row)))
            await Family(call, runtime).see_through(row.session_id)
            call.say(f"{name} is cancelled; its work is in {row.workspace}")
        except LeaseHeld:
            call.say(f"cancel posted as event {receipt.seq} of {name}; the process that runs it ends it right away")
        except EmergencyStop:
            call.say(
                f"cancel posted as event {receipt.seq} of {name}; it ends once `{call.typed('stop', '--release')}`"
            )
        return 0
