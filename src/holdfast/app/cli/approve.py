"""`holdfast approve`: allow what an item asks for."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.running import answering


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    answering.arguments(parser)
    parser.add_argument(
        "--for", metavar="TIME", dest="for_s", type=answering.span, help="allow the same again for 90s, 30m, 2h or 3d"
    )
    parser.add_argument("--uses", metavar="N", type=answering.positive, help="allow the same again N more times")
    parser.add_argument("--match", metavar="GLOB", help="with --for or --uses: not only the same, all that fits this")
    parser.add_argument("--budget", metavar="USD", help="of a money item: another cap than the proposed one")


async def run(call: Call) -> int:
    """Approve it."""
    return await answering.answer(call, "approve")
