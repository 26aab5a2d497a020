"""`holdfast interrupt`: stop what an agent is doing."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.exits import name_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post the interrupt; the agent stops at the next safe boundary and waits for a message."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        running = row.session_id in await runtime.store.holders()
        if not running and row.status != "runnable":
            reason = f" ({row.reason})" if row.reason else ""
            call.say(f"{name_of(row)} is {row.status}{reason}: there is nothing to interrupt")
            if call.json:
                call.emit({"session_id": row.session_id, "seq": None, "duplicate": False})
            return 0
        receipt = await runtime.intake.interrupt(row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        else:
            call.say(f"interrupt posted as event {receipt.seq} of {name_of(row)}")
        if not running:
            call.note(f"nobody runs it now; it stops when it is woken: `{call.typed('wake', name_of(row))}`")
        return 0
