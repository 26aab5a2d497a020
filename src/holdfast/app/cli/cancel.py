"""`holdfast cancel`: end a session for good."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.running.cancelling import cancel


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post the cancel. With no process running the session, this one ends it."""
    return await cancel(call)
