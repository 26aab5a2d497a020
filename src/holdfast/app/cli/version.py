"""`holdfast version`."""

from __future__ import annotations

import argparse

from holdfast import __version__
from holdfast.app.call import Call


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Print the version."""
    if call.json:
        call.emit({"version": __version__})
    else:
        call.say(f"holdfast {__version__}")
    return 0
