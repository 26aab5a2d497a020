"""`holdfast pause`: have a session rest until it is woken."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.running.cancelling import workspace_of
from holdfast.brain.wake import wake
from holdfast.errors import EmergencyStop, LeaseHeld
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post the pause. What runs now ends first; nothing new is begun."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        running = row.session_id in await runtime.store.holders()
        receipt = await runtime.intake.pause(row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        lift = f"lift it with `{call.typed('wake', name_of(row))}`"
        if running:
            call.say(f"{name_of(row)} rests when the step it is at has ended; {lift}")
        else:
            await _rest(runtime, row)
            call.say(f"{name_of(row)} rests; {lift}")
        return 0


async def _rest(runtime: Runtime, row: SessionRow) -> None:
    """Have a parked session say that it is paused. One that was left in the middle of a call is not touched."""
    if row.status != "parked":
        return
    try:
        await wake(row.session_id, runtime.doors(await workspace_of(runtime, row)))
    except (LeaseHeld, EmergencyStop):
        return
