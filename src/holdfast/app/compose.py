"""The composition root: selects the implementation behind each door."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast import __version__
from holdfast.app.exits import machine_trouble
from holdfast.app.home import Home, is_served, open_home, workers
from holdfast.app.models import digests_of, find_model, shared_model
from holdfast.app.providers import Providers, SessionProvider
from holdfast.app.settings.config import Settings, database_path, environment, local_caller
from holdfast.app.settings.prompts import load_prompts
from holdfast.app.settings.targets import outlets
from holdfast.app.settings.values import postgres_address
from holdfast.brain.doors import Doors, Kinds, NoObserver, Observer, Worker, uptime
from holdfast.brain.recall import recall
from holdfast.clock import Clock, SystemClock, boot_id
from holdfast.egress.base import Egress
from holdfast.environment.store import LayerStore
from holdfast.errors import CannotRunSafely, HoldfastError, NeedsProgram, UnknownSession
from holdfast.facts.codec import SCHEMA
from holdfast.facts.session import HandsPolicy, SessionCreated, Workspace
from holdfast.hands.base import Provider
from holdfast.hands.host import host_id
from holdfast.hands.user import choose_user, make_ready
from holdfast.ids import new_worker_id, system_entropy
from holdfast.kinds import KINDS, LOOP
from holdfast.log.base import WorkerRow
from holdfast.log.sql.store import SqlStore
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker as LiveWorker
from holdfast.notify.base import Outlet
from holdfast.repo.base import Shelf
from holdfast.repo.git import is_here
from holdfast.repo.repository import Repository
from holdfast.service.intake import Intake
from holdfast.service.opening import Site
from holdfast.service.sessions import costs_of
from holdfast.session.rows import Uptime
from holdfast.session.tools.output import functions
from holdfast.vault.base import Vault

PROGRAM = f"holdfast {__version__}"

_KEPT = frozenset({"HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"})
"""Environment variables passed to the process that handles news of a job."""


OPENED_MAX = 64
"""Number of session openings cached in memory, to avoid folding each twice. The oldest is dropped first."""


@dataclass(frozen=True)
class Runtime:
    """An opened home: the log, the identity of this process, and factories of doors for a session."""

    settings: Settings
    home: Home
    store: SqlStore[Any]
    worker: Worker
    intake: Intake
    kinds: Kinds = KINDS
    _opened: dict[str, SessionCreated] = field(default_factory=dict)

    def up(self) -> Uptime:
        """The uptime of this machine. Waits end by it even if the wall clock is set back."""
        return uptime(SystemClock(), self.worker.boot_id)

    async def is_served(self, session_id: str = "") -> bool:
        """Return True if a live worker runs that session when it is due; without one, any session of this home."""
        if self.store.place_id:
            return await self.store.is_served(session_id)
        return is_served(self.home, database_path(self.settings))

    async def workers(self) -> tuple[list[str], list[str]]:
        """The live workers of this home, and of all homes, which share the due sessions."""
        here = self.store.place_id
        rows = [row for row in await self.fleet() if row.capacity or not here]
        return [row.worker_id for row in rows if row.place == here], [row.worker_id for row in rows]

    async def fleet(self) -> list[WorkerRow]:
        """The live workers of this log; in a file they tell neither their capacity nor their program."""
        if self.store.place_id:
            return await self.store.fleet()
        held = Counter((await self.store.holders()).values())
        names = workers(self.home, database_path(self.settings))
        return [WorkerRow(name, "", platform.node(), "", SCHEMA, 0, held[name], 0) for name in names]

    @cached_property
    def outlets(self) -> Mapping[str, Outlet]:
        """Notification targets by name. Raises `UsageError` or `CannotRunSafely` for an invalid one."""
        found = outlets(self.settings, SystemClock(), system_entropy) if self.settings.notify else ()
        return {outlet.name: outlet for outlet in found}

    @cached_property
    def shelf(self) -> Shelf | None:
        """The store of workspace snapshots; None on a machine without git, which it needs."""
        if not is_here():
            return None
        folder = self.home.path / "snapshots"
        if self.settings.objects:
            shared: Shelf = objects().SharedShelf(folder, self.settings.objects)
            return shared
        from holdfast.repo.snapshot_store import ShadowShelf

        return ShadowShelf(folder)

    @cached_property
    def providers(self) -> Providers:
        """Sandbox providers by name."""
        return Providers(self.home.hands)

    def close(self) -> None:
        """Close the connections to remote hands, which a stored exception would keep open."""
        if "providers" in self.__dict__:
            self.providers.close()

    @cached_property
    def egress(self) -> Egress:
        """The egress proxies of hands. Raises `UsageError` for invalid settings."""
        from holdfast.app.egress import open_egress

        return open_egress(self.settings, self.home.path)

    def repository(self, path: str) -> Repository:
        """A user's repository, for missions. Raises `CannotRunSafely` on a machine without git."""
        if not is_here():
            raise CannotRunSafely(f"there is no git on this machine to work on {path} with: apt install git")
        from holdfast.repo.git_repository import GitRepository

        return GitRepository(path, self.home.path / "repositories")

    def discard(self, workspace: Workspace) -> None:
        """Remove a folder that `fresh_workspace` made, with its content. Safe to repeat."""
        path = Path(workspace.path)
        if workspace.disposable and path.parent == self.home.workspaces:
            shutil.rmtree(path, ignore_errors=True)

    @cached_property
    def site(self) -> Site:
        """The dependencies for opening sessions."""
        return Site(
            intake=self.intake,
            snapshots=self.store,
            kinds=self.kinds,
            home=self.home.path,
            workspaces=self.home.workspaces,
            program=PROGRAM,
            provider=self.provider,
            model=partial(find_model, settings=self.settings),
        )

    def provider(self, workspace: Workspace, policy: HandsPolicy | None = None) -> Provider:
        """The hands of a session on that workspace. `policy` is for queries before the session has its own."""
        return SessionProvider(self.providers, policy or HandsPolicy(), workspace)

    def doors(
        self,
        workspace: Workspace,
        *,
        observer: Observer | None = None,
    ) -> Doors:
        """Everything that a brain of a session on that workspace needs."""
        prompts = load_prompts(self.settings.prompts, workspace.path, self.settings.prompt_files)
        outages: Any = self.store if self.store.place_id else None
        return Doors(
            log=self.store,
            leases=self.store,
            snapshots=self.store,
            hands=self.provider(workspace),
            model=partial(shared_model, settings=self.settings, folder=self.home.path / "providers", outages=outages),
            clock=SystemClock(),
            entropy=system_entropy,
            worker=self.worker,
            prompt=prompts.texts["worker"],
            kinds=self.kinds,
            prompts=prompts.texts,
            prompt_digests=prompts.digests,
            targets=self.outlets,
            shelf=self.shelf,
            egress=self.egress,
            environments=LayerStore(self.home.path / "environments", SystemClock()),
            uid=lambda workspace: choose_user(workspace).uid,
            workspace=self.fresh_workspace,
            on_news=self.news_command,
            repository=self.repository,
            discard=self.discard,
            costs=self.costs,
            secret=self.secret,
            observer=observer or NoObserver(),
        )

    def secret(self, name: str) -> str:
        """Return the value of a secret of the user. Raises `SecretUnavailable` or `UsageError`."""
        return self._vault.resolve(name).reveal()

    @cached_property
    def _vault(self) -> Vault:
        from holdfast.app.settings.egress_policy import open_vault

        return open_vault(self.settings, SystemClock())

    async def costs(self, session_id: str) -> str:
        """Return the cost of a session and of all below it so far, as text."""
        return str((await costs_of(self.store, await self.store.find(session_id)))[session_id])

    async def doors_for(self, session_id: str, *, observer: Observer | None = None) -> Doors:
        """The doors of any session of this home. Raises `NeedsProgram` if it uses functions that this program lacks."""
        if session_id not in self._opened:
            state, _ = await recall(session_id, self.store, self.store, self.kinds)
            if state.created is None:
                raise UnknownSession(f"session {session_id} has no beginning; `holdfast verify {session_id}` says more")
            while len(self._opened) >= OPENED_MAX:
                del self._opened[next(iter(self._opened))]
            self._opened[session_id] = state.created
        created = self._opened[session_id]
        doors = self.doors(created.workspace, observer=observer)
        if created.agent.model == LOOP:
            loop = importlib.import_module("holdfast.kinds.loop.agent")
            doors = replace(doors, tools=loop.loop_tools(session_id, created, self.store, self.store))
        missing = [tool.name for tool in functions(created.agent) if tool.name not in doors.tools]
        if missing:
            raise NeedsProgram(
                f"it needs functions of the program that opened it ({', '.join(missing)}) and waits for that program"
            )
        return doors

    def news_command(self, session_id: str) -> tuple[str, ...]:
        """The command that a supervisor runs when a job of that session has news: see `holdfast.app.news`.

        It contains no key or other secret, since a supervisor outlives the process that started it. With a log in
        PostgreSQL there is none: a supervisor must not be able to open it, so the next wake takes the news in.
        """
        if postgres_address(self.settings.db):
            return ()
        kept = [f"{name}={value}" for name, value in environment().items() if name in _KEPT]
        if self.settings.objects:
            kept.append(f"HOLDFAST_OBJECTS={self.settings.objects}")
        words = ["--home", str(self.home.path), *(("--db", self.settings.db) if self.settings.db else ())]
        if self.settings.prompt_files is not None:  # accepted: the news process checks that again
            words += ("--project", self.settings.project)
        elif self.settings.prompts:
            words += ("--prompts", self.settings.prompts)
        program = (sys.executable, "-P", "-m", "holdfast.app.news")
        return ("/usr/bin/env", "-i", *kept, *program, *words, session_id)

    def fresh_workspace(self, session_id: str, near: Workspace) -> Workspace:
        """Create a workspace for a session that another one opens: same isolation, same user. Safe to repeat.

        Raises `CannotRunSafely` or `UsageError` when tool calls could not work there.
        """
        path = self.home.workspaces / session_id
        fresh = Workspace(str(path), True, near.user, near.isolation, near.read_only, near.env, near.origin)
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            make_ready(fresh, choose_user(fresh))
        except OSError as error:
            raise machine_trouble(f"{error.strerror}: {path}") from error
        except HoldfastError:
            path.rmdir()
            raise
        return fresh


def objects() -> ModuleType:
    """Return the module of snapshots in an object store. Raises `CannotRunSafely` without the extra that it needs."""
    try:
        return importlib.import_module("holdfast.repo.shared_shelf")
    except ImportError as error:
        raise CannotRunSafely(
            "the client of object stores is not installed; nothing was started: pip install 'holdfast[objects]'"
        ) from error


async def _open_log(settings: Settings, home: Home, clock: Clock, accept_loss: bool) -> SqlStore[Any]:
    """Open the log of a home, in its file or in PostgreSQL."""
    database, address = database_path(settings), postgres_address(settings.db)
    if not address:
        return await SqliteStore.open(database, workers=home.workers, clock=clock, accept_loss=accept_loss)
    opened = postgres("store").PostgresStore.open
    store: SqlStore[Any] = await opened(
        address,
        workers=home.workers,
        clock=clock,
        keeps=bool(settings.objects),
        program=PROGRAM,
        settings=digests_of(settings),
    )
    return store


def postgres(module: str) -> ModuleType:
    """Return a module of `holdfast.log.postgres`. Raises `CannotRunSafely` without the extra that it needs."""
    try:
        return importlib.import_module(f"holdfast.log.postgres.{module}")
    except ImportError as error:
        raise CannotRunSafely(
            "the PostgreSQL client is not installed; nothing was started: pip install 'holdfast[postgres]'"
        ) from error


@asynccontextmanager
async def open_runtime(settings: Settings, *, via: str = "cli", accept_loss: bool = False) -> AsyncIterator[Runtime]:
    """Open the home and its log for this process; close them at the end of the block.

    `via` is the face that acts for the user of this process. `accept_loss` opens a log that lacks acknowledged events,
    to record their loss.
    """
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
        async with await _open_log(settings, home, clock, accept_loss) as store:
            intake = Intake(store, store, clock, system_entropy, local_caller(via), worker.boot_id)
            runtime = Runtime(settings, home, store, replace(worker, place=store.place_id), intake)
            try:
                yield runtime
            finally:
                runtime.close()
    finally:
        live.close()
