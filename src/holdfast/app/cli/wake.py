"""`holdfast wake` (and `resume`): go on from the log."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.cli.run import doors_of, workspace_of
from holdfast.app.compose import open_runtime
from holdfast.app.drive import drive


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--steal", action="store_true", help="take it from a process that still holds it")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Wake it and stay with it until it stops."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        doors = doors_of(call, runtime, await workspace_of(runtime, row), row)
        return await drive(call, runtime, row.session_id, doors, steal=call.args.steal)
