"""Missions as a kind of session. Its loop is the conductor's, in `acts`."""

from __future__ import annotations

import msgspec

from holdfast.facts.mission import LessonProposed
from holdfast.facts.session import SessionCreated
from holdfast.facts.task import FindingNoted, RatchetViolated
from holdfast.kinds.mission.fold import merges, tasks
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.session.state import State
from holdfast.session.tenant import Kind

NEXT = {
    "planned": "to do",
    "handed_in": "to be inspected",
    "inspected": "to be checked",
    "queued": "to be merged",
}
"""Status of a task that no session works on → what comes next."""


class MissionKind(Kind[State]):
    """Kind of sessions that are missions; they call no model."""

    name = "mission"
    state_type = MissionState
    sources = ("holdfast.kinds.mission.fold",)
    fold = {**tasks.FOLD, **merges.FOLD}
    unfolded = frozenset({FindingNoted, LessonProposed, RatchetViolated})

    def began(self, created: SessionCreated) -> msgspec.Struct:
        """Return the initial state: the contract, not sealed yet."""
        assert created.mission is not None
        return MissionState(created.mission.contract, created.mission.policy)

    def branch(self, state: State) -> str | None:
        """Name of the mission's main branch."""
        return of_mission(state).ref.removeprefix("refs/heads/")

    def met(self, state: State) -> tuple[int, int] | None:
        """Return how many criteria pass on the branch, and how many the contract has."""
        mission = of_mission(state)
        return len(mission.passed), len(mission.contract.criteria())

    def queue(self, state: State) -> tuple[str, ...]:
        """Tasks that no worker and no judge is at, with what comes next for each."""
        tasks = [task for task in of_mission(state).live() if task.status in NEXT]
        return (f"queue: {', '.join(f'{task.task.id} {NEXT[task.status]}' for task in tasks)}",) if tasks else ()

    def awaits_wake(self, state: State) -> bool:
        """True if another process moved the main branch; the user restores it before waking the mission."""
        return bool(of_mission(state).astray)


KIND = MissionKind()
