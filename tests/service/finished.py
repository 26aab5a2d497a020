"""Homes with many finished sessions, made without a model: what they hold, and how many bytes of it can be freed."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.egress.control import make
from holdfast.environment.layers import size_of
from holdfast.environment.store import LayerStore
from holdfast.facts.codec import Draft
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.mission import Contract, Mission
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.facts.union import AnyFact
from holdfast.hands.limits.plan import baseline_name
from holdfast.ids import new_event_id, system_entropy
from holdfast.log.base import Post
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.snapshot_store import ShadowShelf
from holdfast.service.leftovers import Premises


def draft(fact: AnyFact) -> Draft:
    return Draft(new_event_id(SystemClock().now_us(), system_entropy), "brain", fact)


def layers(home: Path) -> LayerStore:
    return LayerStore(home / "environments", SystemClock())


class Builder:
    """Makes sessions in a home, and counts the bytes that finished ones leave behind."""

    def __init__(self, home: Path, store: SqliteStore) -> None:
        self.home = home
        self.store = store
        self.shelf = ShadowShelf(home / "snapshots")
        self.reclaimable = 0
        self.place = Premises(
            store=store,
            home=home,
            clock=SystemClock(),
            shelf=self.shelf,
            layers=layers(home),
            repository=lambda path: GitRepository(path, home / "repositories"),
            search=SearchIndex(search_path(home / "holdfast.db")),
            actor="user:ann",
        )
        self.chance = random.Random(14)

    def workspace(self, session_id: str) -> Path:
        return self.home / "workspaces" / session_id

    async def session(
        self,
        session_id: str,
        *,
        folder: Path | None = None,
        over: bool = True,
        accounts: tuple[str, ...] = (),
        big: int = 0,
        mission: Mission | None = None,
    ) -> Path:
        """A session that wrote two states of its files; `big` bytes of its last event are a body of their own."""
        path = folder or self.workspace(session_id)
        created = SessionCreated(
            goal="make it",
            agent=Agent(model="scripted:none", name="mission" if mission else "agent"),
            workspace=Workspace(str(path), folder is None),
            accounts=accounts,
            mission=mission,
        )
        await self.store.post(Post(session_id, "created", draft(created)), create=True)
        worker = Worker.start(self.home / "workers", f"wrk_{session_id}")
        shift = ShiftStarted(worker_id=worker.worker_id, host_id="h", boot_id="b", pid=1, program="t")
        lease = await self.store.acquire(session_id, draft(shift))
        path.mkdir(parents=True, exist_ok=True)
        for seq in (2, 3):
            (path / "file").write_bytes(self.chance.randbytes(20_000))
            kept = await self.shelf.keep(session_id, path, seq)
            fact = WorkspaceSnapshotted(through_seq=seq, snapshot=kept.snapshot, files=kept.files, bytes=kept.bytes)
            await self.store.append(session_id, lease.epoch, [draft(fact)])
        result = draft(ToolResult(call_id="1.0", outcome="ok", content="x" * big))
        end = ShiftEnded(status="done" if over else "parked", reason=None if over else "person")
        await self.store.append(session_id, lease.epoch, [result, draft(end)])
        worker.close()
        usage = self.home / "usage"
        usage.mkdir(exist_ok=True)
        (usage / baseline_name(session_id, str(path))).write_text("[1, 2]")
        proxy = make(self.home / "egress", session_id)
        (proxy.door / "ca.pem").write_bytes(b"c" * 50_000)
        if over:
            self.reclaimable += size_of(proxy.door) + 20_000 + (size_of(path) if folder is None else 0)
        return path

    async def mission(self, session_id: str, repo: Path, *, over: bool = True) -> None:
        """A mission with a base, a task's branch that only it has, and a main branch."""
        base = git(repo, "rev-parse", "HEAD")
        name = session_id.removeprefix("ses_")
        mission = Mission(name=name, repo=str(repo), base=base, contract=Contract(goal="g", items=()))
        await self.session(session_id, mission=mission, over=over)
        lone = git(repo, "commit-tree", "HEAD^{tree}", "-p", base, "-m", f"work of {name}")
        git(repo, "update-ref", f"refs/heads/holdfast/{name}/main", base)
        git(repo, "update-ref", f"refs/heads/holdfast/{name}/task", lone)
        git(repo, "update-ref", f"refs/holdfast/{name}/base", base)


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", repo, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "a").write_text("a")
    git(folder, "add", "a")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
    for key, value in (("user.name", "a"), ("user.email", "a@b")):
        git(folder, "config", key, value)
    return folder


@asynccontextmanager
async def building(home: Path) -> AsyncIterator[Builder]:
    """A home to build in."""
    home.mkdir(parents=True, exist_ok=True)
    for name in ("workspaces", "hands", "workers"):
        (home / name).mkdir(exist_ok=True)
    os.chmod(home, 0o711)
    async with await SqliteStore.open(home / "holdfast.db", workers=home / "workers", clock=SystemClock()) as store:
        yield Builder(home, store)
