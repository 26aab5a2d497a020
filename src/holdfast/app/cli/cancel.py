"""`holdfast cancel`: end a session for good."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.cli.run import workspace_of
from holdfast.app.compose import open_runtime
from holdfast.brain.wake import wake
from holdfast.errors import LeaseHeld


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post the cancel. With no process running the session, this one ends it."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        receipt = await runtime.intake.cancel(row, call.args.reason)
        try:
            await wake(row.session_id, runtime.doors(await workspace_of(runtime, row)))
        except LeaseHeld:
            call.note("the process that runs it will end it at its next safe boundary")
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        else:
            call.say(f"cancel posted as event {receipt.seq} of {receipt.session_id}")
        return 0
