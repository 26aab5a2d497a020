"""`holdfast cancel`: end a session for good."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.cli.run import workspace_of
from holdfast.app.compose import open_runtime
from holdfast.app.exits import name_of
from holdfast.app.family import Family
from holdfast.brain.wake import wake
from holdfast.errors import EmergencyStop, LeaseHeld


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
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
