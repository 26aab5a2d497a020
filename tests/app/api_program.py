"""What the tests of the Python API share: a function, a model that calls it, an opened home."""

from __future__ import annotations

from typing import Any

import holdfast
from tests.app.terminal import turn


@holdfast.tool(on_unknown="tell", price_usd="0.25")
async def publish(page: str) -> str:
    """Publish a page."""
    if page == "broken":
        raise ValueError("no such page")
    return f"{page} is out"


def call(name: str, **value: Any) -> dict[str, Any]:
    """A turn that calls a tool."""
    return turn(tool_calls=[{"name": name, "input": value}], text=f"Now {name}.")


async def types(hf: holdfast.Holdfast, session: str) -> list[str]:
    """The types of all events of a session."""
    return [event.type async for event in hf.events(session)]
