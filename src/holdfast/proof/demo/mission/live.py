"""Run a mission in child processes that are killed at random moments and restarted."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import anyio

from holdfast.app.compose import PROGRAM, Runtime
from holdfast.errors import HoldfastError
from holdfast.facts.codec import Event
from holdfast.facts.mission import Mission, MissionPolicy
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.proof.demo.brain_process import KillAt, Watch, end_brain, follow, never, start_brain
from holdfast.proof.demo.mission.material import MissionMaterial
from holdfast.proof.demo.mission.probe import Say
from holdfast.proof.rebuild.library import TESTDEPS_INSIDE

EVENTS_OF_AN_ITEM = 14
"""Approximate number of events per item in the mission's log. Kills are spread over all events."""

KILL_WITHIN_S = 0.5
"""Seconds after its randomly chosen event within which a kill follows."""

STARTS_MAX = 10
"""Starts of a runtime that ends by itself without a result; kills do not count."""


@dataclass
class Lived:
    """End of the processes: positions of the kills in the mission's log, and the last exit status."""

    kills: list[int] = field(default_factory=list)
    exit_code: int = 1


async def open_mission(
    runtime: Runtime, session_id: str, material: MissionMaterial, *, workers: int, budget_pico: int | None
) -> None:
    """Open the mission without running it."""
    scope_listed = any(fault.kind == "conflict" for fault in material.answers.faults)
    policy = MissionPolicy(
        workers=workers,
        # A conflict needs two workers that change the same lines; if all keep to a scope, there are none.
        scope="list" if scope_listed else "refuse",
        # The suites used here are deterministic, so one more run of a red check is enough.
        flake_reruns=1,
        lessons="off",
    )
    place = Workspace(
        str(runtime.home.workspaces / session_id), True, read_only={str(material.dependencies): TESTDEPS_INSIDE}
    )
    created = SessionCreated(
        goal=material.contract.goal,
        agent=Agent(model=f"oracle:{material.answers_path.absolute()}", name="mission"),
        workspace=runtime.fresh_workspace(session_id, place),
        limits=Limits(budget_pico=budget_pico, max_children=4 * workers + 8),
        accounts=(session_id,),
        program=PROGRAM,
        mission=Mission(
            name="demo", repo=str(material.repo), base=material.base, contract=material.contract, policy=policy
        ),
    )
    await runtime.intake.open(session_id, created)


async def live(watch: Watch, items: int, kills: int, seed: int, say: Say) -> Lived:
    """Run the mission until it ends or parks, killing the whole runtime `kills` times meanwhile."""
    chance = random.Random(f"{seed}|kills")
    most = max(3, 2 * EVENTS_OF_AN_ITEM * items // (kills + 1))
    lived = Lived()
    starts = 0
    while True:
        process = start_brain(watch.runtime, watch.session_id)
        try:
            killed = await follow(watch, process, _soon(watch, chance, most) if len(lived.kills) < kills else never)
        finally:
            end_brain(process)
        if killed is not None:
            lived.kills.append(killed.seq)
            say(f"    SIGKILL to the runtime, process {process.pid}, after event {killed.seq}; starting another …")
            continue
        lived.exit_code = process.returncode
        starts += 1
        if process.returncode in (0, 1, 3, 4) or starts >= STARTS_MAX:
            return lived
        if process.returncode != 5:
            raise HoldfastError(
                f"the runtime ended with status {process.returncode}; what it said is in "
                f"{watch.runtime.home.logs / watch.session_id}.log"
            )


def _soon(watch: Watch, chance: random.Random, most: int) -> KillAt:
    """Kill at a random moment: up to `most` events from now, then a fraction of a second."""
    wanted = watch.seen + chance.randint(2, most)
    pause_s = chance.uniform(0.0, KILL_WITHIN_S)

    async def kill_at(event: Event) -> bool:
        if event.seq < wanted:
            return False
        await anyio.sleep(pause_s)
        return True

    return kill_at
