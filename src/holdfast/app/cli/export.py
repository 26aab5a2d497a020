"""`holdfast export`: one session as JSON lines."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.cli.logs import PAGE
from holdfast.app.compose import open_runtime
from holdfast.app.screen.progress import public
from holdfast.facts.codec import genesis


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--json", action="store_true", help="JSON lines, as without it")


async def run(call: Call) -> int:
    """Print every event, with its hash, verified on the way."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        seen, prev = 0, genesis(row.session_id)
        while events := await runtime.store.read(row.session_id, after=seen, prev=prev, limit=PAGE):
            for event in events:
                call.emit(public(event))
            seen, prev = events[-1].seq, events[-1].hash
    return 0
