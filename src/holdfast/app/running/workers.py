"""Support for worker processes: cleanup after killed processes, and loading of the extras for remote hands."""

from __future__ import annotations

import importlib
from typing import Any

import anyio

from holdfast.app.compose import Runtime
from holdfast.clock import SystemClock
from holdfast.egress.control import sweep_doors
from holdfast.environment.store import LayerStore
from holdfast.errors import CannotRunSafely
from holdfast.hands.incarnation import at_work, forsaken, remnants, remove, sweep_sockets
from holdfast.repo.git_repository import GitRepository
from holdfast.service.leftovers import Premises, may_testify


async def sweep(runtime: Runtime) -> None:
    """Remove sandboxes missing from the log, and unused sockets; keep any that may live or hold evidence of a call."""
    hands = runtime.home.hands
    for session_id, folder in await anyio.to_thread.run_sync(forsaken, hands):
        if not await may_testify(runtime.store, runtime.kinds, session_id, folder.name):
            await anyio.to_thread.run_sync(remove, folder)
    for folder in await anyio.to_thread.run_sync(remnants, hands, SystemClock()):
        await anyio.to_thread.run_sync(remove, folder)
    await anyio.to_thread.run_sync(sweep_sockets, SystemClock())
    living = await anyio.to_thread.run_sync(at_work, hands)
    await anyio.to_thread.run_sync(sweep_doors, runtime.home.path / "egress", living)


def premises(runtime: Runtime) -> Premises:
    """The home as its life cycle sees it."""
    return Premises(
        store=runtime.store,
        home=runtime.home.path,
        clock=SystemClock(),
        shelf=runtime.shelf,
        layers=LayerStore(runtime.home.path / "environments", SystemClock()),
        repository=lambda path: GitRepository(path, runtime.home.path / "repositories"),
        actor=runtime.intake.actor,
    )


SERVE = "holdfast.hands.remote.serve"
WORKER = "holdfast.hands.remote.worker"


def serving() -> Any:
    """Load the server of the queue. Raises `CannotRunSafely` without the extra."""
    return _module(SERVE)


def working() -> Any:
    """Load the worker of a queue. Raises `CannotRunSafely` without the extra."""
    return _module(WORKER)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "holdfast":
            raise
        raise CannotRunSafely(f"{missing} is not installed; type: pip install 'holdfast[remote]'") from None
