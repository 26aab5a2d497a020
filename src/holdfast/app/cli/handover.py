"""`holdfast handover`: make a session another person's."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("name", metavar="NAME", help="who answers its questions from now on")
    parser.add_argument("--no-wake", action="store_true", help="only hand it over, and start nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Hand it over."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        receipt = await runtime.intake.hand_over(row, call.args.name)
        owner = (await runtime.store.find(row.session_id)).owner
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "owner": owner})
        else:
            before = f", it was {row.owner}'s" if row.owner else ""
            call.say(f"{name_of(row)} is {owner}'s now{before}")
        call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
        return 0
