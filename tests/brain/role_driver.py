"""A process that opens a worker of a mission, to be killed: `python -m tests.brain.role_driver BASE MOMENT`.

Its log is a file, its repository a real one, its folders are real. At the moment it says so in a line and stops:
`half` or `whole` of the checkout is there, the worker's work is `made` or its branch `pointed` there. `never` opens the
worker, `finish` has it work too.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from holdfast.brain.doors import Doors
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.mission import Mission, MissionOpened, MissionPlanned, MissionPolicy
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.ids import new_event_id, new_worker_id, system_entropy
from holdfast.kinds import KINDS
from holdfast.kinds.mission.acts.open_roles import open_role
from holdfast.kinds.mission.conductor.actions import OpenRole
from holdfast.log.sqlite import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.model.scripted import ScriptedModel, parse_script
from holdfast.repo.base import Owner
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.repository import Commit, Kept
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from tests.brain.mission_stage import CONTRACT, TASKS
from tests.brain.stage import Stage, turn

DONE = b"def add(a, b):\n    return a + b\n"


class Stopping(GitRepository):
    """A repository whose checkout stops in the middle, or when it is whole."""

    moment = "never"

    def _stop(self, *moments: str) -> bool:
        if self.moment in moments:
            print(self.moment, flush=True)
        return self.moment in moments

    async def commit(
        self,
        folder: Path,
        parents: Sequence[str],
        message: str,
        at_us: int,
        *,
        user: Owner | None = None,
        kept: Sequence[Kept] = (),
    ) -> Commit:
        """Commit, and perhaps no more."""
        made = await super().commit(folder, parents, message, at_us, user=user, kept=kept)
        if self._stop("made"):
            await anyio.sleep_forever()
        return made

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """Move it, and perhaps no more."""
        moved = await super().point(ref, new, old)
        if self._stop("pointed"):
            await anyio.sleep_forever()
        return moved

    async def checkout(self, commit: str, folder: Path, *, user: Owner | None = None) -> None:
        """Say where it is, and wait for the end."""
        if self.moment == "half":
            (folder / "src").mkdir()
            (folder / "src" / "half.py").write_text("half")
        else:
            await super().checkout(commit, folder, user=user)
        if self._stop("half", "whole"):
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
        intake = Intake(store, store, clock, system_entropy, Caller("user:test"))
        policy = MissionPolicy(hooks=False)
        created = SessionCreated(
            goal="all of it",
            agent=Agent(model="scripted", name="mission"),
            workspace=Workspace(str(base / "repository")),
            key="mission",
            mission=Mission("demo", str(base / "repository"), start.commit, CONTRACT, policy=policy),
        )
        rows = [row for row in await store.sessions() if not row.parent]
        session_id = rows[0].session_id if rows else intake.new_session_id()
        if not rows:
            await intake.open(session_id, created)
        state, bodies = await recall(session_id, store, store, KINDS)
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
        if not shift.state.children:
            await open_role(shift, action)
        await store.release(shift.lease)
        if moment in ("made", "pointed", "finish"):
            await _work(base, doors, next(iter(shift.state.children)), lock.worker_id)


async def _work(base: Path, doors: Doors, child_id: str, worker_id: str) -> None:
    """Have the worker work; what its hands in memory would do to its folder is done here."""
    (base / "made" / child_id / "src" / "app" / "core.py").write_bytes(DONE)
    turns = [turn("", ("bash", {"command": "true"})), turn("", ("hand_in", {"status": "done", "notes": "it adds"}))]
    model = ScriptedModel(parse_script(json.dumps({"turns": turns})), SystemClock())
    await wake(child_id, replace(doors, model=lambda name: model, worker=replace(doors.worker, worker_id=worker_id)))


def _folder(base: Path, session_id: str) -> Workspace:
    path = base / "made" / session_id
    path.mkdir(parents=True, exist_ok=True)
    return Workspace(str(path), True)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
