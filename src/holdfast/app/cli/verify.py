"""`holdfast verify`: the chain and the rows of one session, or of all."""

from __future__ import annotations

import argparse

import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.progress import counted
from holdfast.log.verify import verify


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", nargs="?", help="one session; all of them when left out")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Check it."""
    async with open_runtime(call.settings) as runtime:
        name = call.args.session
        session_id = (await runtime.store.find(name)).session_id if name else None
        verified = await verify(runtime.store, session_id)
    if call.json:
        call.emit(msgspec.to_builtins(verified))
    else:
        for finding in verified.findings:
            where = f"{finding.session_id} at {finding.seq}: " if finding.session_id else ""
            call.say(f"DAMAGED  {where}{finding.message}")
        call.say(
            f"{counted(verified.sessions, 'session')}, {counted(verified.events, 'event')}: "
            + (counted(len(verified.findings), "finding") if verified.findings else "all chains and rows verify")
        )
    return exits.DAMAGED if verified.findings else exits.DONE
