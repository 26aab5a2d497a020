"""A program that embeds Holdfast, for tests that kill it in the middle of its own function."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import anyio

import holdfast
from holdfast.facts.base import OnUnknown

PRICE = "0.25"
BUDGET = 2


def make_tool(folder: Path, on_unknown: OnUnknown) -> holdfast.Tool[..., Any]:
    """A function that notes each of its calls, and returns once there is a file `go`."""

    @holdfast.tool(on_unknown=on_unknown, keyed=True, price_usd=PRICE)
    def charge(cents: int, context: holdfast.ToolContext, *, idempotency_key: str) -> str:
        """Charge some cents."""
        with (folder / "contexts").open("a") as file:
            file.write(f"{context}\n")
        with (folder / "calls").open("a") as file:
            file.write(f"{idempotency_key} {cents}\n")
        print("begun", flush=True)
        while not (folder / "go").exists():
            threading.Event().wait(0.01)
        return "charged"

    if on_unknown == "probe":

        @charge.probe
        def happened(cents: int, idempotency_key: str) -> bool | None:
            said = (folder / "probe").read_text()
            assert said.split() == [said.split()[0], idempotency_key, str(cents)]
            return {"yes": True, "no": False}.get(said.split()[0])

    return charge


async def _main(folder: Path, model: str, on_unknown: Any) -> None:
    agent = holdfast.Agent(model, tools=[make_tool(folder, on_unknown)])
    async with holdfast.open(folder / "home") as hf:
        await hf.run(agent, "Charge it.", key="k", budget_usd=BUDGET)


if __name__ == "__main__":
    anyio.run(_main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
