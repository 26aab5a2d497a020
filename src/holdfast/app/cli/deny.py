"""`holdfast deny`: refuse what an item asks for; the note tells the agent why."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.running import answering


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    answering.arguments(parser)


async def run(call: Call) -> int:
    """Deny it."""
    return await answering.answer(call, "deny")
