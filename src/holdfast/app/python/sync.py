"""The Python API for programs that are not async: `holdfast.run_sync`."""

from __future__ import annotations

from os import PathLike
from typing import Unpack

import anyio

from holdfast.app.python.agent import Agent
from holdfast.app.python.client import open
from holdfast.app.python.types import Result, RunOptions, T
from holdfast.errors import UsageError


def run_sync(
    agent: Agent[T], goal: str, *, home: str | PathLike[str] | None = None, **options: Unpack[RunOptions]
) -> Result[T]:
    """Run `Holdfast.run` in a program that is not async: open the home, run to the next stop, close it.

    Raises as `run` does, and `UsageError` inside an event loop; use `await hf.run(…)` there.
    """

    async def once() -> Result[T]:
        async with open(home) as hf:
            return await hf.run(agent, goal, **options)

    try:
        anyio.get_current_task()
    except (RuntimeError, anyio.NoEventLoopError):
        return anyio.run(once)
    raise UsageError("run_sync was called inside an event loop; there, open a home and `await hf.run(agent, goal)`")
