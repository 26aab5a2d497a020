"""`holdfast send`: post a message."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("text", metavar="TEXT", help="the message")
    parser.add_argument("--key", metavar="KEY", default="", help="a second message with this key is dropped")
    parser.add_argument("--no-wake", action="store_true", help="only post it, and start nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post the message; the session takes it in at its next model request."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        receipt = await runtime.intake.send(row, call.args.text, key=call.args.key)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        else:
            again = " before, and not again" if receipt.duplicate else ""
            call.say(f"posted as event {receipt.seq} of {name_of(row)}{again}")
        call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
        return 0
