"""`holdfast deny`: refuse what an item asks for; the note tells the agent why."""

from __future__ import annotations

import argparse

from holdfast.app import answering
from holdfast.app.call import Call


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    answering.arguments(parser)


async def run(call: Call) -> int:
    """Deny it."""
    return await answering.answer(call, "deny")
