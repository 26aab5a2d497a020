"""The composition root: which real thing stands behind each door."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast import __version__
from holdfast.app.config import Settings, actor, database_path
from holdfast.app.home import Home, open_home
from holdfast.app.prompts import load_prompt
from holdfast.brain.doors import Doors, NoObserver, Observer, Worker
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.session import Workspace
from holdfast.fleet.intake import Intake
from holdfast.hands.base import Provider
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.host import boot_id, host_id
from holdfast.hands.unsandboxed import UnsandboxedProvider
from holdfast.ids import new_worker_id, system_entropy
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.workers import Worker as LiveWorker
from holdfast.model.base import Model
from holdfast.model.scripted import ScriptedModel
from holdfast.sim.answers import load_oracle

PROGRAM = f"holdfast {__version__}"


@dataclass(frozen=True)
class Runtime:
    """An opened home: the log, who this process is, and how to make doors for a session."""

    settings: Settings
    home: Home
    store: SqliteStore
    worker: Worker
    intake: Intake

    def provider(self, workspace: Workspace) -> Provider:
        """The hands that a workspace asks for."""
        if workspace.isolation == "none":
            return UnsandboxedProvider(self.home.hands)
        return BubblewrapProvider(self.home.hands)

    def doors(
        self,
        workspace: Workspace,
        *,
        observer: Observer | None = None,
    ) -> Doors:
        """Everything that a brain of a session on that workspace needs."""
        prompt, digest = load_prompt("worker")
        return Doors(
            log=self.store,
            leases=self.store,
            snapshots=self.store,
            hands=self.provider(workspace),
            model=find_model,
            clock=SystemClock(),
            entropy=system_entropy,
            worker=self.worker,
            prompt=prompt,
            prompt_digests={"worker": digest},
            observer=observer or NoObserver(),
        )


@asynccontextmanager
async def open_runtime(settings: Settings) -> AsyncIterator[Runtime]:
    """Open the home and its log for this process; closed again on the way out."""
    database = database_path(settings)
    home = open_home(Path(settings.home))
    clock = SystemClock()
    worker = Worker(
        worker_id=new_worker_id(clock.now_us(), system_entropy),
        host_id=host_id(),
        boot_id=boot_id(),
        pid=os.getpid(),
        program=PROGRAM,
    )
    live = LiveWorker.start(home.workers, worker.worker_id)
    try:
        async with await SqliteStore.open(database, workers=home.workers, clock=clock) as store:
            intake = Intake(store, store, clock, system_entropy, actor())
            yield Runtime(settings, home, store, worker, intake)
    finally:
        live.close()


def find_model(name: str) -> Model:
    """The model behind a `--model` name. Raises `UsageError` for one that this version does not know."""
    provider, _, rest = name.partition(":")
    if provider == "scripted" and rest:
        return ScriptedModel.from_file(Path(rest), SystemClock())
    if provider == "oracle" and rest:
        return load_oracle(Path(rest), SystemClock())
    known = "scripted:FILE"
    if not name:
        raise UsageError(f"no model is named; give one with --model, for example --model {known}")
    if provider in _OF_FILES:
        raise UsageError(f"the model {name!r} names no file; an example is --model {known}")
    raise UsageError(f"unknown model {name!r}; this version knows {known} (and the oracle of `holdfast demo`)")


_OF_FILES = ("scripted", "oracle")
"""Providers whose models are files."""


def settled_model(name: str) -> str:
    """The same model by a name that is good in every folder, since any process may wake the session."""
    provider, _, rest = name.partition(":")
    return f"{provider}:{Path(rest).absolute()}" if provider in _OF_FILES and rest else name
