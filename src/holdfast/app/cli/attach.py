"""`holdfast attach`: watch a session that another process runs."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.running.drive import attach


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Watch it until it stops, or until Ctrl-C; either leaves the session as it is."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        return await attach(call, runtime, row.session_id)
