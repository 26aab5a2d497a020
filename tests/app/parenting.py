"""A program whose function opens a child and waits for it, for a test that kills it meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

import holdfast


def functions(folder: Path) -> list[Callable[..., Any]]:
    """Two functions: one opens a child, and the other stops in a child until there is a file `go`."""

    @holdfast.tool(on_unknown="retry")
    async def review(where: holdfast.ToolContext) -> str:
        """Have it reviewed."""
        return (await where.child("Review it.", key="review", name="reviewer", tools=["hold"])).text

    @holdfast.tool(on_unknown="retry")
    def hold(where: holdfast.ToolContext) -> str:
        """Wait in a child."""
        print("begun", flush=True)
        while where.session_key != "k" and not (folder / "go").exists():
            threading.Event().wait(0.01)
        return "held"

    return [review, hold]


async def _main(folder: Path, model: str) -> None:
    async with holdfast.open(folder / "home") as hf:
        await hf.run(holdfast.Agent(model, tools=functions(folder)), "Do it.", key="k")


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]), sys.argv[2])
