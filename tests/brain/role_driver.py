"""A process that opens a worker of a mission, to be killed: `python -m tests.brain.role_driver BASE MOMENT`.

Its log is a file, its repository a real one, its folders are real. At the moment (`half`, `whole`, `never`) it says so
in a line and stops.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import anyio

from holdfast.brain.acts.roles import open_role
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.mission import Mission, MissionOpened, MissionPlanned, MissionPolicy
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.fleet.intake import Intake
from holdfast.ids import new_event_id, new_worker_id, system_entropy
from holdfast.log.sqlite import SqliteStore
from holdfast.log.workers import Worker
from holdfast.mission.actions import OpenRole
from holdfast.repo.base import Owner
from holdfast.repo.repository_git import GitRepository
from tests.brain.mission_stage import CONTRACT, TASKS
from tests.brain.stage import Stage


class Stopping(GitRepository):
    """A repository whose checkout stops in the middle, or when it is whole."""

    moment = "never"

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        """Say where it is, and wait for the end."""
        if self.moment == "half":
            (folder / "src").mkdir()
            (folder / "src" / "half.py").write_text("half")
        else:
            await super().checkout(commit, folder, user=user)
        if self.moment != "never":
            print(self.moment, flush=True)
            await anyio.sleep_forever()


async def main(base: Path, moment: str) -> None:
    """Open the mission if it is not there, take its lease, open its worker."""
    clock = SystemClock()
    repository = Stopping(base / "repository", base / "state")
    repository.moment = moment
    start = await repository.resolve("refs/heads/main")
    assert start is not None
    lock = Worker.start(base / "workers", new_worker_id(clock.now_us(), system_entropy))
    async with await SqliteStore.open(base / "log.db", workers=base / "workers", clock=clock) as store:
        doors = replace(
            Stage([]).doors,
            log=store,
            leases=store,
            snapshots=store,
            repository=lambda path: repository,
            workspace=lambda session_id, near: _folder(base, session_id),
            discard=lambda workspace: shutil.rmtree(workspace.path),
        )
        intake = Intake(store, store, clock, system_entropy, "user:test")
        policy = MissionPolicy(hooks=False)
        created = SessionCreated(
            goal="all of it",
            agent=Agent(model="scripted", name="mission"),
            workspace=Workspace(str(base / "repository")),
            key="mission",
            mission=Mission("demo", str(base / "repository"), start.commit, CONTRACT, policy=policy),
        )
        rows = await store.sessions()
        session_id = rows[0].session_id if rows else intake.new_session_id()
        if not rows:
            await intake.open(session_id, created)
        state, bodies = await recall(session_id, store, store)
        fact = ShiftStarted(lock.worker_id, "host", "boot", 1, "test")
        draft = Draft(new_event_id(clock.now_us(), system_entropy), "brain", fact)
        shift = Shift(doors, state, await store.acquire(session_id, draft), bodies)
        await shift.refresh()
        if not rows:
            opened = MissionOpened(name="demo", ref="refs/heads/holdfast/demo/main", base=start.commit, tree=start.tree)
            await shift.fact(opened, MissionPlanned(tasks=TASKS))
        shift.decided_at = shift.state.seq
        ref = "refs/heads/holdfast/demo/core"
        action = OpenRole("worker", 1, start.commit, "core", start.commit, ref, criteria=("add",))
        await open_role(shift, action)
        await store.release(shift.lease)


def _folder(base: Path, session_id: str) -> Workspace:
    path = base / "made" / session_id
    path.mkdir(parents=True, exist_ok=True)
    return Workspace(str(path), True)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
