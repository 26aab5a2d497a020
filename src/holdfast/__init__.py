"""Holdfast: a runtime for AI agents that keep working for hours, days and weeks.

    import asyncio, holdfast

    @holdfast.tool(on_unknown="ask", price_usd="0.10")
    async def publish(page: str) -> str:
        "Publish a page."
        return f"{page} is out"

    async def main() -> None:
        async with holdfast.open() as hf:
            result = await hf.run(holdfast.Agent("anthropic:NAME", tools=[publish]), "Publish the front page.")
            print(result.status, result.text, result.cost_usd)

    asyncio.run(main())

`Agent` and `tool` say who works and with what. `open` gives a `Holdfast`, which runs, streams, resumes, steers and
answers. `run_sync` is for programs that are not async. A session is an append-only log: whatever kills the program, any
process can resume it. docs/python.md has the whole of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Agent": "holdfast.app.python.agent",
    "Brief": "holdfast.app.python.types",
    "CannotRunSafely": "holdfast.errors",
    "Delta": "holdfast.app.python.types",
    "Document": "holdfast.facts.base",
    "Event": "holdfast.facts.codec",
    "Holdfast": "holdfast.app.python.client",
    "HoldfastError": "holdfast.errors",
    "Image": "holdfast.facts.base",
    "Item": "holdfast.app.python.types",
    "ItemClosed": "holdfast.errors",
    "Result": "holdfast.app.python.types",
    "Rule": "holdfast.facts.session",
    "Session": "holdfast.app.python.types",
    "Spending": "holdfast.app.python.types",
    "Stream": "holdfast.app.python.drive",
    "Tool": "holdfast.app.python.tools",
    "ToolContext": "holdfast.app.python.signatures",
    "UnknownSession": "holdfast.errors",
    "UsageError": "holdfast.errors",
    "open": "holdfast.app.python.client",
    "run_sync": "holdfast.app.python.sync",
    "tool": "holdfast.app.python.tools",
}
"""Public names and the modules that have them, loaded when they are asked for: `import holdfast` stays quick.

`__init__.pyi` says the same to type checkers."""

__all__ = ["__version__", *_WHERE]
__all__.sort()


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
