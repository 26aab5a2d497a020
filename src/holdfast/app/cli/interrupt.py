"""`holdfast interrupt`: stop what an agent is doing."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post the interrupt; the agent stops at the next safe boundary and waits for a message."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        receipt = await runtime.intake.interrupt(row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        else:
            call.say(f"interrupt posted as event {receipt.seq} of {receipt.session_id}")
        return 0
