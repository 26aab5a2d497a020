"""Bugs in missions: their conductor, their verdicts, their main line, their money."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.brain.shift import Shift
from holdfast.errors import Fenced
from holdfast.facts.codec import Event
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import Judged, RepoMerged, TaskJudged, TaskQueued
from holdfast.kinds.mission.acts import conducting as mission_act
from holdfast.kinds.mission.acts import inspecting, merging, open_roles
from holdfast.kinds.mission.acts.checkouts import Ground, Laying, Place, Places
from holdfast.kinds.mission.acts.proving import Prover
from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.conductor import ending, merges, tasks
from holdfast.kinds.mission.conductor.actions import Assemble, Look, OpenRole
from holdfast.kinds.mission.fold import merges as fold_merges
from holdfast.kinds.mission.fold.state import MissionState, OpenMerge, TaskState, Verdict, of_mission
from holdfast.kinds.mission.kind import MissionKind
from holdfast.kinds.mission.ratchet.inspection import Inspection
from holdfast.kinds.mission.role import submissions
from holdfast.kinds.mission.role.submissions import read_verdict
from holdfast.log.ledger import Ledger
from holdfast.repo.repository import Repository
from holdfast.session.actions import Record
from holdfast.session.state import State
from tests.sim.planted.kit import Bed

BED = Bed()


def _kind_judge(mission: MissionState, report: ChildFinished, task: TaskState | None) -> TaskJudged:
    """Who says nothing has nothing against it."""
    judged = read_verdict(mission, report, task)
    if report.submitted:
        return judged
    names = mission.roles[report.child_id].criteria
    said = tuple(Judged(name, True, ("README.md:1",)) for name in names)
    return msgspec.structs.replace(judged, decision="pass", criteria=said, refused="")


@BED.plant("S25", "only_words_of_judges_count")
def a_judge_that_is_silent_counts_as_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tasks, "read_verdict", _kind_judge)
    patch.setattr(ending, "read_verdict", _kind_judge)


@BED.plant("S25", "only_words_of_judges_count", first=32)
def a_contradiction_counts_as_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(submissions, "_agrees", lambda said: ())
    patch.setattr(submissions, "_complete", lambda said, known: ())


@BED.plant("S25", "main_line_stays_green")
def a_verdict_is_taken_from_another_tree(patch: pytest.MonkeyPatch) -> None:
    whole = MissionState.verdict

    def verdict(self: MissionState, tree: str, criterion: str) -> Verdict | None:
        found = (known[criterion] for known in self.verdicts.values() if criterion in known)
        return whole(self, tree, criterion) or next((each for each in found if each.outcome == "pass"), None)

    patch.setattr(MissionState, "verdict", verdict)


@BED.plant("S25", "green_is_proven")
def a_check_that_was_measured_is_not_proven_again(patch: pytest.MonkeyPatch) -> None:
    async def unsure(self: Prover, names: Any, ground: Ground) -> list[str]:
        return []

    patch.setattr(Prover, "unsure", unsure)


@BED.plant("S25", "the_last_tree_is_proven")
def a_mission_ends_with_the_proofs_of_earlier_trees(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merges, "last_proof", lambda mission: None)


@BED.plant("S26", "main_line_stays_green")
def a_merge_needs_what_its_tasks_are_for_alone(patch: pytest.MonkeyPatch) -> None:
    whole = merges.needed

    def needed(mission: MissionState, names: Any) -> tuple[str, ...]:
        wanted = {each for name in names for each in mission.tasks[name].task.criteria}
        return tuple(each for each in whole(mission, names) if each in wanted)

    patch.setattr(merges, "needed", needed)


@BED.plant("S26", "judged_is_what_is_there", first=101)
def the_word_of_a_judge_outlives_what_it_was_said_of(patch: pytest.MonkeyPatch) -> None:
    async def nothing(shift: Shift, merge: OpenMerge, repository: Repository) -> dict[str, tuple[str, ...]]:
        return {}

    patch.setattr(merging, "_touched", nothing)


@BED.plant("S26", "metrics_do_not_get_worse", first=1)
def a_metric_may_fall_below_its_best_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(metrics, "best", lambda mission, name: None)


@BED.plant("S26", "passed_only_grows")
def what_passed_is_forgotten_when_something_else_is_merged(patch: pytest.MonkeyPatch) -> None:
    whole = fold_merges._merged

    def merged(state: State, fact: RepoMerged, event: Event) -> None:
        whole(state, fact, event)
        mission = of_mission(state)
        own = {name for task in fact.tasks for name in mission.tasks[task].task.criteria}
        mission.passed = {name: seq for name, seq in mission.passed.items() if name in own}

    _applied(patch, RepoMerged, merged)


@BED.plant("S25", "done_means_met", first=59)
def the_word_of_a_worker_is_believed(patch: pytest.MonkeyPatch) -> None:
    whole = fold_merges._merged

    def merged(state: State, fact: RepoMerged, event: Event) -> None:
        whole(state, fact, event)
        for name in fact.tasks:
            of_mission(state).passed.update(dict.fromkeys(of_mission(state).tasks[name].task.criteria, event.seq))

    def inspected(mission: MissionState, task: TaskState, running: frozenset[str]) -> Record:
        return Record((TaskQueued(task_id=task.task.id, commit=task.commit, tree=task.tree),))

    _applied(patch, RepoMerged, merged)
    patch.setattr(tasks, "_inspected", inspected)
    patch.setattr(merges, "needed", lambda mission, names: ())


def _applied(patch: pytest.MonkeyPatch, kind: type[Any], fold: Any) -> None:
    patch.setitem(MissionKind.fold, kind, fold)


@BED.plant("S25", "verdicts_are_made_once", first=32)
def verdicts_of_refused_trees_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold_merges, "VERDICTS_KEPT", 0)


@BED.plant("S24", "nothing_forbidden_is_merged", first=9)
def what_a_worker_did_to_tests_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inspecting, "hold", lambda *args, **more: Inspection((), (), (), 0))


@BED.plant("S25", "verdicts_are_true", first=4)
def checks_run_with_the_tests_of_the_worker(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Laying, ground: Ground, asked: Collection[str]) -> list[str]:
        return []

    patch.setattr(Laying, "_wrong", nothing)
    patch.setattr(inspecting, "hold", lambda *args, **more: Inspection((), (), (), 0))


@BED.plant("S15", "spend_is_shared", first=2)
def a_child_has_an_account_of_its_own_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(open_roles, "path_of", lambda created, session_id: ())


@BED.plant("S15", "spend_is_shared", first=2)
def a_cap_counts_only_what_is_spent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_misses", lambda self, account, amount: [])


@BED.plant("S23", "intents_come_first")
def the_main_line_is_moved_before_anything_is_recorded(patch: pytest.MonkeyPatch) -> None:
    whole = merging._merged

    async def merged(shift: Shift, action: Assemble, repository: Repository) -> Any:
        made = await whole(shift, action, repository)
        mission = of_mission(shift.state)
        await repository.point(mission.ref, made.at.commit, mission.main)
        return made

    patch.setattr(merging, "_merged", merged)


@BED.plant("S23", "people_lose_nothing")
def commits_of_people_count_as_taken_in(patch: pytest.MonkeyPatch) -> None:
    whole = merging._merged

    async def merged(shift: Shift, action: Assemble, repository: Repository) -> Any:
        alone = msgspec.structs.replace(action, base="")
        return (await whole(shift, alone, repository))._replace(base=action.base)

    patch.setattr(merging, "_merged", merged)


@BED.plant("S23", "people_lose_nothing", first=89)
def people_are_not_looked_for_at_the_end(patch: pytest.MonkeyPatch) -> None:
    async def away(shift: Shift, action: Look) -> None:
        return

    patch.setitem(mission_act.EFFECTS, Look, away)


@BED.plant("S4", "children_are_opened_once")
def a_worker_is_opened_again_while_it_works(patch: pytest.MonkeyPatch) -> None:
    whole = tasks._working

    def working(state: State, mission: MissionState, task: TaskState) -> Any:
        found = whole(state, mission, task)
        if found is None and task.attempt == 1 and state.in_shift and len(mission.roles) < 6:
            again = tasks._open(mission, task)
            if isinstance(again, OpenRole):
                return msgspec.structs.replace(again, attempt=1)
        return found

    patch.setattr(tasks, "_working", working)


@BED.plant("S24", "caps_hold")
def a_task_is_begun_anew_without_end(patch: pytest.MonkeyPatch) -> None:
    whole = tasks._open

    def open_(mission: MissionState, task: TaskState) -> Any:
        return whole(_endless(mission, max_attempts=99), task)

    patch.setattr(tasks, "_open", open_)


@BED.plant("S24", "caps_hold")
def judges_are_asked_without_end(patch: pytest.MonkeyPatch) -> None:
    whole = tasks._judging

    def judging(mission: MissionState, task: TaskState) -> Any:
        return whole(_endless(mission, judge_tries=99), task)

    patch.setattr(tasks, "_judging", judging)


@BED.plant("S24", "caps_hold", first=10)
def plans_are_made_without_asking_anybody(patch: pytest.MonkeyPatch) -> None:
    whole = ending._again

    def again(mission: MissionState, why: str) -> Any:
        return whole(_endless(mission, max_replans=9), why)

    patch.setattr(ending, "_again", again)


@BED.plant("S24", "few_are_at_work", first=6)
def who_is_sent_back_goes_on_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tasks, "_has_room", lambda mission, task: True)


def _endless(mission: MissionState, **caps: int) -> MissionState:
    return msgspec.structs.replace(mission, policy=msgspec.structs.replace(mission.policy, **caps))


@BED.plant("S5", "verdicts_are_true", first=187)
def a_checkout_is_discarded_under_the_brain_that_took_over(patch: pytest.MonkeyPatch) -> None:
    whole = Places.place

    @asynccontextmanager
    async def place(
        self: Places, ground: Ground, changed: Mapping[str, bytes | None] | None = None, *, unseen: bool = False
    ) -> AsyncIterator[tuple[Place, str]]:
        where: Place | None = None
        try:
            async with whole(self, ground, changed, unseen=unseen) as (where, laid):
                yield where, laid
        except Fenced:
            if where is not None:
                self.shift.doors.discard(where.workspace)
            raise

    patch.setattr(Places, "place", place)
