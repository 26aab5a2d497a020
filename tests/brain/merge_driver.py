"""A process that holds a mission and moves its main line, to be killed: `merge_driver HOME BASE BRANCHES CHECK WHERE`.

BRANCHES are `task:commit:tree`, with commas between. WHERE is `before` or `after` the move of the main line, where it
says so and stays; or `-`, and it says `done` at the end. Everything is real: the log, the repository, the hands.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import anyio

from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.errors import UnknownSession
from holdfast.facts.codec import Draft
from holdfast.facts.mission import Check, Contract, Criterion, Item, Mission, MissionPlanned, MissionPolicy
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.task import CheckProbed, TaskHandedIn, TaskInspected, TaskQueued, TaskStarted
from holdfast.ids import new_event_id, system_entropy
from holdfast.kinds.mission.acts import merging, verifying
from holdfast.kinds.mission.conductor import merges
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Open, Verify
from holdfast.repo.git_repository import GitRepository
from holdfast.session.actions import Record
from tests.brain.merge_stage import state_of, task

SESSION = "ses_01m0000000000000000000000a"
MAIN = "refs/heads/holdfast/demo/main"


class Stopping(GitRepository):
    """Says so and stays, before or after the main line is moved."""

    where = "-"

    async def point(self, ref: str, new: str, old: str | None) -> bool:
        """As ever, but for the move."""
        moves = ref == MAIN and old is not None
        if moves and self.where == "before":
            await _stay("before")
        done = await super().point(ref, new, old)
        if moves and self.where == "after":
            await _stay("after")
        return done


async def _stay(word: str) -> None:
    print(word, flush=True)
    await anyio.sleep_forever()


async def main(*words: str) -> None:
    """Take the mission up wherever it is, and go on."""
    home, base, branches, command, where = words
    repo = Path(home).parent / "repo"
    async with open_runtime(Settings(home=home)) as runtime:
        line = Stopping(repo, Path(home) / "repositories")
        line.where = where
        workspace = Workspace(str(repo))
        doors = replace(runtime.doors(workspace), repository=lambda path: line)
        names = [each.split(":") for each in branches.split(",")]
        contract = Contract(
            "g",
            tuple(
                Item(name, "", criteria=(Criterion(name, "", Check(f"{command} {name}.txt")),)) for name, *_ in names
            ),
        )
        await _opened(
            runtime,
            Mission("demo", str(repo), base, contract, policy=MissionPolicy(judge="off", confirm_runs=1)),
            workspace,
        )
        state, bodies = await recall(SESSION, runtime.store, runtime.store, runtime.kinds)
        who = runtime.worker
        draft = Draft(
            new_event_id(doors.clock.now_us(), system_entropy),
            "brain",
            ShiftStarted(who.worker_id, who.host_id, who.boot_id, who.pid, who.program),
        )
        shift = Shift(doors, state, await runtime.store.acquire(SESSION, draft), bodies)
        await shift.refresh()
        await _planned(shift, names)
        await _drive(shift)
        print("done", flush=True)


async def _opened(runtime: Runtime, mission: Mission, workspace: Workspace) -> None:
    try:
        await runtime.store.find(SESSION)
    except UnknownSession:
        created = SessionCreated(goal="g", agent=Agent("scripted"), workspace=workspace, mission=mission)
        await runtime.intake.open(SESSION, created)


async def _planned(shift: Shift, names: list[list[str]]) -> None:
    if state_of(shift).planned:
        return
    await merging.open_mission(shift, Open())
    tree = state_of(shift).main_tree
    probed = [CheckProbed(name, tree, "", "impossible", "impossible", "impossible", "no") for name, *_ in names]
    await shift.fact(MissionPlanned(tasks=tuple(task(name, name) for name, *_ in names)), *probed)
    for name, commit, tree in names:
        child = f"ses_{name}"
        await shift.fact(
            TaskStarted(task_id=name, child_id=child, attempt=1, base=state_of(shift).main, ref=f"refs/heads/x/{name}"),
            TaskHandedIn(task_id=name, child_id=child, status="done", commit=commit, tree=tree),
            TaskInspected(task_id=name, tree=tree, files=(name,)),
            TaskQueued(task_id=name, commit=commit, tree=tree),
        )


async def _drive(shift: Shift) -> None:
    while True:
        action = merges.step(shift.state, state_of(shift), frozenset())
        match action:
            case Assemble():
                await merging.assemble(shift, action)
            case Verify():
                await verifying.verify(shift, action)
            case Advance():
                await merging.advance(shift, action)
            case Record(facts=facts):
                await shift.fact(*facts)
            case _:
                return


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:6])
