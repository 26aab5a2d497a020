"""Planning: planners, their plans, and plans made by code. Pure."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.mission import MissionPlanned, MissionReplanned, PlanRefused, Task
from holdfast.facts.shift import ChildFinished
from holdfast.kinds.mission.conductor.actions import Found, OpenRole
from holdfast.kinds.mission.conductor.tasks import waits_for_budget
from holdfast.kinds.mission.fold.state import MissionState
from holdfast.kinds.mission.plan import plan_from_items, plan_problems, read_plan, too_large
from holdfast.session.actions import Record
from holdfast.session.state import State

REFUSALS_MAX = 3
"""Refusals of a plan after which code makes one for the remaining criteria."""

BY_CODE = "made by code: one task for each item"


def step(state: State, mission: MissionState) -> Found:
    """Return the next action for planning; None if a plan exists and no other was requested."""
    if mission.planner_id:
        return _answer(mission)
    if not mission.planned:
        return open_planner(mission, 0)
    if mission.replan_seq:
        return open_planner(mission, mission.round + 1)
    if mission.policy.planner == "items":
        return None
    large = too_large(mission)
    if large is None:
        return None
    return OpenRole(
        kind="planner",
        attempt=1,
        commit=mission.main,
        base=mission.main,
        task_id=large,
        round=mission.round,
        criteria=mission.tasks[large].task.criteria,
    )


def open_planner(mission: MissionState, round_: int) -> Found:
    """Open a planner; or plan by code, by policy or after too many refused plans."""
    if mission.policy.planner == "items" or mission.plan_refusals >= REFUSALS_MAX:
        return Record((_plan(mission, round_, _left(mission, round_), "", BY_CODE),))
    return OpenRole(
        kind="planner", attempt=mission.plan_refusals + 1, commit=mission.main, base=mission.main, round=round_
    )


def _left(mission: MissionState, round_: int) -> tuple[Task, ...]:
    """Make tasks by code for the unmet criteria, under ids that no earlier round used."""
    tasks = plan_from_items(mission.contract, skip=frozenset(mission.passed))
    if not round_:
        return tasks
    renamed = {task.id: f"{task.id}-r{round_}" for task in tasks}
    return tuple(
        msgspec.structs.replace(
            task, id=renamed[task.id], depends=tuple(renamed[name] for name in task.depends if name in renamed)
        )
        for task in tasks
    )


def _plan(
    mission: MissionState, round_: int, tasks: tuple[Task, ...], child_id: str, note: str, dropped: tuple[str, ...] = ()
) -> Fact:
    if not mission.planned:
        return MissionPlanned(tasks=tasks, child_id=child_id, note=note)
    why = mission.replan_why or "; ".join(mission.failures[-3:])
    return MissionReplanned(round=round_, tasks=tasks, dropped=dropped, child_id=child_id, why=why or note)


def _answer(mission: MissionState) -> Found:
    """Accept the plan of a planner that ended, or handle its lack."""
    child_id = mission.planner_id
    report = mission.reports.get(child_id)
    if report is None or waits_for_budget(mission, child_id):
        return None
    role = mission.roles[child_id]
    if report.status != "done" or not report.submitted:
        return _no_plan(mission, report, role.task_id, role.round)
    tasks, dropped, note = read_plan(report.submitted)
    problems = plan_problems(tasks, mission, role.task_id, dropped)
    if problems:
        # Its own session has used up its refusals of such plans, or the mission changed after it accepted this one.
        return _by_code(mission, role.task_id, role.round, (PlanRefused(child_id=child_id, problems=problems),))
    if role.task_id:
        parent = role.task_id
        parts = tuple(msgspec.structs.replace(task, parent=parent) for task in tasks)
        return Record((_plan(mission, role.round, parts, child_id, note, (parent,)),))
    over = tuple(name for name, task in mission.tasks.items() if task.status == "planned") if role.round else ()
    return Record((_plan(mission, role.round, tasks, child_id, note, (*over, *dropped)),))


def _no_plan(mission: MissionState, report: ChildFinished, task_id: str, round_: int) -> Found:
    """After a planner ended without a plan: open another, and finally plan by code."""
    refused = PlanRefused(child_id=report.child_id, problems=(report.detail or "it ended without a plan",))
    if mission.plan_refusals + 1 >= REFUSALS_MAX:
        return _by_code(mission, task_id, round_, (refused,))
    return OpenRole(
        kind="planner",
        attempt=mission.plan_refusals + 2,
        commit=mission.main,
        base=mission.main,
        task_id=task_id,
        round=round_,
        facts=(refused,),
    )


def _by_code(mission: MissionState, task_id: str, round_: int, facts: tuple[Fact, ...]) -> Record:
    child_id = mission.planner_id
    if not task_id:
        plan = _plan(mission, round_, _left(mission, round_), child_id, BY_CODE)
        return Record((*facts, plan))
    task = mission.tasks[task_id].task
    whole = msgspec.structs.replace(task, id=f"{task.id}-whole", parent=task.id, split=False)
    return Record((*facts, _plan(mission, round_, (whole,), child_id, "it could not be divided", (task_id,))))
