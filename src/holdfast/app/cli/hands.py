"""`holdfast hands serve`: hands of this machine for a brain elsewhere, over standard input and output."""

from __future__ import annotations

import argparse
from pathlib import Path

from holdfast import __version__
from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.providers import serving_provider
from holdfast.clock import SystemClock
from holdfast.hands.far.server import FarServer
from holdfast.hands.far.stdio import serve_stdio


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    serve = words.add_parser("serve", help="answer on standard input and output, as `ssh HOST` starts it")
    _provider(serve)


def _provider(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--provider",
        metavar="NAME",
        default="",
        help="what isolates here (bubblewrap unless given)",
    )


async def run(call: Call) -> int:
    """Serve until the input ends. Running calls go on; whoever comes next finds them."""
    folder = Path(call.settings.home).absolute() / "served"
    server = FarServer(serving_provider(call.args.provider, folder), folder, program=f"holdfast {__version__}")
    server.open(SystemClock())
    await serve_stdio(server, 0, 1)
    return exits.DONE
