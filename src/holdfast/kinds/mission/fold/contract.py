"""The fold of a mission: its contract, its plans, its children, its money, and its documents."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.budget import BudgetSet
from holdfast.facts.child import ChildFinished, ChildMessaged
from holdfast.facts.codec import Event
from holdfast.facts.contract import ContractAmended, ContractSealed
from holdfast.facts.mission import (
    LessonApplied,
    MissionEscalated,
    MissionFinished,
    MissionOpened,
    MissionPlanned,
    MissionReplanned,
    PlannerOpened,
    PlanRefused,
    ReplanAsked,
)
from holdfast.facts.repo import RepoCommitted
from holdfast.facts.session import SessionUpdated
from holdfast.kinds.mission.fold.shared import turn
from holdfast.kinds.mission.fold.state import (
    OVER,
    ChildRole,
    MissionState,
    TaskState,
    of_mission,
)
from holdfast.session.state import Apply, State

NOTES = "/notes"
"""How the branch of a mission's documents ends."""


def _child_finished(state: State, fact: ChildFinished, event: Event) -> None:
    mission = of_mission(state)
    if fact.child_id in mission.roles:
        mission.reports[fact.child_id] = fact


def _child_told(state: State, fact: ChildMessaged, event: Event) -> None:
    of_mission(state).reports.pop(fact.child_id, None)


def _raised(state: State, fact: BudgetSet, event: Event) -> None:
    of_mission(state).raised_seq = event.seq


def _updated(state: State, fact: SessionUpdated, event: Event) -> None:
    mission = of_mission(state)
    if fact.budget_pico is not None:
        mission.raised_seq = event.seq
    if fact.egress is not None:  # a check that failed for want of the network is asked again
        for verdicts in mission.verdicts.values():
            for name in [name for name, verdict in verdicts.items() if verdict.outcome != "pass"]:
                del verdicts[name]


def _noted(state: State, fact: RepoCommitted, event: Event) -> None:
    if fact.ref.endswith(NOTES):
        of_mission(state).noted_seq = fact.through_seq


def _sealed(state: State, fact: ContractSealed, event: Event) -> None:
    of_mission(state).digest = fact.digest


def _amended(state: State, fact: ContractAmended, event: Event) -> None:
    mission = of_mission(state)
    before = mission.contract.criteria()
    after = fact.contract.criteria()
    changed = {name for name in before if after.get(name) != before[name]}
    mission.contract, mission.digest = fact.contract, fact.digest
    for name in changed:
        for known in (
            mission.passed,
            mission.rubric,
            mission.stale,
            mission.final_passed,
            mission.greened,
            mission.curves,
            mission.abilities,
            mission.proofs,
        ):
            known.pop(name, None)
        for verdicts in mission.verdicts.values():
            verdicts.pop(name, None)
        for values in mission.measured.values():
            values.pop(name, None)
    state.stirred()


def _opened(state: State, fact: MissionOpened, event: Event) -> None:
    mission = of_mission(state)
    mission.opened_seq, mission.ref = event.seq, fact.ref
    mission.main, mission.main_tree, mission.followed = fact.base, fact.tree, fact.base


def _planned(state: State, fact: MissionPlanned, event: Event) -> None:
    mission = of_mission(state)
    mission.planned = True
    _settle_planner(mission, fact.child_id)
    for task in fact.tasks:
        mission.tasks[task.id] = TaskState(task, since_seq=event.seq)


def _replanned(state: State, fact: MissionReplanned, event: Event) -> None:
    mission = of_mission(state)
    mission.round, mission.replan_seq, mission.replan_why = fact.round, 0, ""
    _settle_planner(mission, fact.child_id)
    for name in fact.dropped:
        task = mission.tasks.get(name)
        if task is not None and task.status not in OVER:
            turn(task, "dropped", event)
    for each in fact.tasks:
        mission.tasks[each.id] = TaskState(each, since_seq=event.seq)
    for name in fact.dropped:
        _take_apart(mission, name, tuple(each.id for each in fact.tasks if each.parent == name))


def _take_apart(mission: MissionState, name: str, parts: tuple[str, ...]) -> None:
    """Whatever waited for a task waits for all its parts."""
    for known in mission.tasks.values():
        if parts and name in known.task.depends and known.task.parent != name:
            depends = (*(each for each in known.task.depends if each != name), *parts)
            known.task = msgspec.structs.replace(known.task, depends=depends)


def _settle_planner(mission: MissionState, child_id: str) -> None:
    mission.reports.pop(child_id, None)
    mission.planner_id, mission.plan_refusals = "", 0


def _planner(state: State, fact: PlannerOpened, event: Event) -> None:
    mission = of_mission(state)
    mission.planner_id = fact.child_id
    mission.roles[fact.child_id] = ChildRole("planner", fact.task_id, round=fact.round)


def _plan_refused(state: State, fact: PlanRefused, event: Event) -> None:
    mission = of_mission(state)
    mission.reports.pop(fact.child_id, None)
    mission.plan_refusals += 1


def _replan_asked(state: State, fact: ReplanAsked, event: Event) -> None:
    state.stirred()
    mission = of_mission(state)
    mission.replan_seq, mission.replan_why = event.seq, fact.reason
    if mission.stale:  # judges gave no verdict that counts, and a person said to go on: they are asked anew
        mission.final_tries, mission.final_verdict = 0, None


def _escalated(state: State, fact: MissionEscalated, event: Event) -> None:
    of_mission(state).escalated_seq = event.seq


def _finished(state: State, fact: MissionFinished, event: Event) -> None:
    of_mission(state).finished = fact.status


def _lesson(state: State, fact: LessonApplied, event: Event) -> None:
    lessons = of_mission(state).lessons
    if fact.line not in lessons:
        lessons.append(fact.line)


FOLD: Mapping[type[Fact], Apply] = {
    ContractSealed: _sealed,
    ContractAmended: _amended,
    MissionOpened: _opened,
    MissionPlanned: _planned,
    MissionReplanned: _replanned,
    PlannerOpened: _planner,
    PlanRefused: _plan_refused,
    ReplanAsked: _replan_asked,
    MissionEscalated: _escalated,
    MissionFinished: _finished,
    LessonApplied: _lesson,
    ChildFinished: _child_finished,
    ChildMessaged: _child_told,
    BudgetSet: _raised,
    SessionUpdated: _updated,
    RepoCommitted: _noted,
}
