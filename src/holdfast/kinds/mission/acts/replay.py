"""Replay of a main branch: each commit is checked again from scratch for all that had passed by then (S26).

It serves as proof: it records nothing, reuses no verdict, and calls no model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import anyio
import msgspec

from holdfast.brain.doors import Doors
from holdfast.brain.recall import recall
from holdfast.brain.shift import Shift
from holdfast.errors import RepositoryUnfit
from holdfast.facts.codec import Event
from holdfast.facts.mission import ContractAmended, MissionOpened
from holdfast.facts.task import RepoMerged
from holdfast.hands.base import ExecRequest
from holdfast.kinds.mission.acts.checkouts import Ground, Places, give_back
from holdfast.kinds.mission.check import checking
from holdfast.kinds.mission.check.checking import Group
from holdfast.kinds.mission.contract import protected
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.log.base import Lease
from holdfast.repo.repository import Repository

EPOCH = 1
"""Epoch of hands outside any shift."""

LINE_MAX = 100_000


class Step(msgspec.Struct, frozen=True):
    """Commit of the main branch: the criteria that had passed by then, and the latest followed commit in it."""

    commit: str
    passed: tuple[str, ...]
    people: str


class Replayed(NamedTuple):
    """Result of checking a commit again. `failed` are criteria that do not pass; `known`: the commit is in the log."""

    commit: str
    criteria: int
    failed: tuple[str, ...]
    runs: int
    known: bool = True


def steps(events: Sequence[Event]) -> dict[str, Step]:
    """Read the main branch from the log, by commit. Only an amended contract shrinks the set of passed criteria."""
    found: dict[str, Step] = {}
    passed: dict[str, None] = {}
    people = ""
    for event in events:
        fact = event.fact
        if isinstance(fact, MissionOpened):
            people = fact.base
            found[fact.base] = Step(fact.base, (), people)
        elif isinstance(fact, ContractAmended):
            kept = fact.contract.criteria()
            passed = {name: None for name in passed if name in kept and name not in fact.weakened}
        elif isinstance(fact, RepoMerged):
            people = fact.base or people
            passed |= dict.fromkeys(fact.passed)
            found[fact.commit] = Step(fact.commit, tuple(passed), people)
    return found


async def replay(doors: Doors, session_id: str) -> AsyncIterator[Replayed]:
    """Check every first-parent commit of the main branch, from the base to the head.

    Commits that the log does not know are reported too. A failing check is run again as often as the mission would.
    """
    state, bodies = await recall(session_id, doors.log, doors.snapshots, doors.kinds)
    mission, created = of_mission(state), state.created
    assert mission is not None
    assert created is not None
    assert created.mission is not None
    repository = doors.repository(created.mission.repo)
    known = steps(await doors.log.read(session_id))
    shift = Shift(doors, state, Lease(session_id, EPOCH, doors.worker.worker_id, ()), bodies)
    places = Places(shift, repository, f"{session_id}-replay")
    for commit in await _line(repository, mission, next(iter(known), "")):
        step = known.get(commit)
        if step is None:
            yield Replayed(commit, 0, (), 0, known=False)
            continue
        yield await _replayed(places, mission, step)


async def _line(repository: Repository, mission: MissionState, base: str) -> list[str]:
    """Return the commits of the first-parent line from the base on, oldest first."""
    head = await repository.resolve(mission.ref)
    if head is None:
        raise RepositoryUnfit(f"there is no {mission.ref}; nothing was changed: give the mission's own repository")
    found: list[str] = []
    for line in await repository.history(head.commit, LINE_MAX):
        at = await repository.resolve(line.split(" ", 1)[0])
        assert at is not None
        found.append(at.commit)
        if at.commit == base:
            break
    return found[::-1]


async def _replayed(places: Places, mission: MissionState, step: Step) -> Replayed:
    found = await places.repository.resolve(step.commit)
    assert found is not None
    ground = Ground(step.commit, found.tree, step.people)
    criteria = mission.contract.criteria()
    checks = {name: check for name in step.passed if name in criteria and (check := criteria[name].check) is not None}
    failed: list[str] = []
    runs = 0
    unseen = {name for name, each in checks.items() if protected.names_hidden(each, mission.contract)}
    flaky = [name for name in checks if mission.flakes.get(name)]
    parts = ({name: checks[name] for name in checks if (name in unseen) is kind} for kind in (False, True))
    waiting = [group for part in parts for group in checking.groups(part, flaky)]
    while waiting:
        group = waiting.pop(0)
        output = ""
        for _ in range(1 if group.divisible else 1 + mission.policy.flake_reruns):
            runs += 1
            passed, output = await _passes(places, ground, group)
            if passed:
                break
        else:
            if group.divisible:
                waiting[:0] = checking.divided(group, output)
            else:
                failed += group.names
    return Replayed(step.commit, len(checks), tuple(failed), runs)


async def _passes(places: Places, ground: Ground, group: Group) -> tuple[bool, str]:
    unseen = protected.names_hidden(group.checks[0], places.laying.contract)
    async with places.place(ground, unseen=unseen) as (place, _):
        hands = await places.hands(place)
        try:
            request = ExecRequest("bash", {"command": checking.script(group)}, group.timeout_s)
            await hands.start(EPOCH, f"replay.{places.count}", request)
            result = await hands.wait(EPOCH, f"replay.{places.count}")
        finally:
            with anyio.CancelScope(shield=True):
                await give_back(places.shift, hands)
    read = checking.read(group.checks[0], result.exit_code, result.output, timed_out=result.timed_out)
    return read.outcome == "pass", result.output
