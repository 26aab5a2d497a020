"""The log of a simulated mission beside what is true of each of its trees, for the rules to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.contract import Criterion
from holdfast.facts.mission import (
    CriterionChecked,
    MissionFinished,
    MissionPlanned,
    MissionReplanned,
    VerificationStarted,
    WorkSubmitted,
)
from holdfast.facts.repo import RepoMerged
from holdfast.facts.task import TaskJudged
from holdfast.kinds.mission.fold.state import LAST
from holdfast.sim.missions.world import MAIN, MissionWorld

F = TypeVar("F", bound=Fact)


class MissionHistory:
    """What became of a mission. `approvals` is how often people said that it is to go on."""

    def __init__(self, world: MissionWorld, approvals: int) -> None:
        self.world = world
        self.scene = world.scene
        self.policy = world.scene.policy
        self.approvals = approvals
        self.events = world.events[world.mission_id]
        self.criteria: dict[str, Criterion] = world.scene.contract.criteria()
        self.executable = frozenset(name for name, each in self.criteria.items() if each.check is not None)
        self._true: dict[str, frozenset[str]] = {}

    def of(self, kind: type[F], before: int = 2**62) -> Iterator[tuple[Event, F]]:
        """The facts of a type before a position, each with its event."""
        for event in self.events:
            if event.seq < before and isinstance(event.fact, kind):
                yield event, event.fact

    def true(self, tree: str) -> frozenset[str]:
        """The criteria that a commit or tree really meets."""
        if tree not in self._true:
            self._true[tree] = self.scene.true_of(self.world.tree(tree))
        return self._true[tree]

    def passing(self, tree: str, before: int) -> set[str]:
        """The criteria that the log had a passing check of on a tree, before a position."""
        checked = self.of(CriterionChecked, before)
        return {name for _, fact in checked if fact.tree == tree and fact.outcome == "pass" for name in fact.criteria}

    def withdrawn(self, before: int) -> set[str]:
        """The criteria that passed, and that the last proofs took that from, before a position."""
        last = {fact.verification_id for _, fact in self.of(VerificationStarted) if fact.effect.startswith(LAST)}
        checked = [fact for _, fact in self.of(CriterionChecked, before) if fact.verification_id in last]
        return {name for fact in checked if fact.outcome != "pass" for name in fact.criteria}

    @property
    def finished(self) -> tuple[Event, MissionFinished] | None:
        """The end of the mission."""
        return next(self.of(MissionFinished), None)

    @property
    def main(self) -> str:
        """Where the main line is."""
        return self.world.repository.refs.get(MAIN, "")

    def merged(self) -> list[tuple[Event, RepoMerged]]:
        """The steps of the main line."""
        return list(self.of(RepoMerged))

    def tasks_for(self, criterion: str) -> set[str]:
        """The ids of the tasks that had a criterion."""
        tasks = [task for _, fact in self.of(MissionPlanned) for task in fact.tasks]
        tasks += [task for _, fact in self.of(MissionReplanned) for task in fact.tasks]
        return {task.id for task in tasks if criterion in task.criteria}

    def words_of(self, child_id: str) -> dict[str, object]:
        """What a role handed in last, out of its own log."""
        facts = [event.fact for event in self.world.events.get(child_id, [])]
        said = [fact.body for fact in facts if isinstance(fact, WorkSubmitted)]
        return said[-1] if said else {}

    def accepted_wrongly(self, rubric: str) -> list[str]:
        """The judges whose word counted for a rubric line that was not met on the tree that they saw."""
        return [
            fact.child_id
            for _, fact in self.of(TaskJudged)
            if not fact.refused
            and any(each.criterion == rubric and each.passes for each in fact.criteria)
            and rubric not in self.true(fact.tree)
        ]
