"""Sets up in a process that is to be killed: `python -m tests.environment.killed HOME WORKSPACE COMMAND`."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from holdfast.facts.session import Environment
from tests.environment.rigs import Home


async def main(*arguments: str) -> None:
    """Run a session that needs that set-up."""
    home, workspace, command = arguments
    await Home(Path(home)).run(Path(workspace), Environment(setup=(command,)), "true")


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
