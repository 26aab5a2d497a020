"""Decision of the conductor: the next action of a mission. It is code and calls no model. Pure.

This module has the order; the parts are in `tasks` (from the plan to a mergeable branch), `merges` (the main branch),
`plans` (planners and their plans), and `ending`.
"""

from __future__ import annotations

from holdfast.facts.mission import MissionFinished
from holdfast.facts.shift import ParkReason, ShiftEnded
from holdfast.kinds.mission.check import flakes
from holdfast.kinds.mission.conductor import ending, merges, plans, tasks
from holdfast.kinds.mission.conductor.actions import (
    AwaitEffects,
    Found,
    Look,
    MissionAction,
    Open,
    Project,
    RaiseChildren,
)
from holdfast.kinds.mission.documents import key_of
from holdfast.kinds.mission.fold.state import BASE, OVER, MissionState, of_mission
from holdfast.kinds.mission.ratchet import inspection
from holdfast.session.actions import Action, CancelChildren, End, Record
from holdfast.session.decide import end, waits
from holdfast.session.state import State

LOOK_AGAIN = "look:astray"
"""Effect that checks whether a main branch that another process moved is back in place."""

LESSON = "lesson"
"""Kind of the inbox item about a line for AGENTS.md. The mission does not wait for its answer."""

DOCUMENTS = "documents"


def decide(
    state: State, now_us: int, running: frozenset[str] = frozenset(), ran: frozenset[str] = frozenset()
) -> Action | MissionAction:
    """Return the mission's next action. `running` are the effects under way in this shift, `ran` those that ended."""
    mission = of_mission(state)
    if state.cancelled:
        return _cancelled(state, mission)
    if state.paused:
        return end(state, "parked", "person", waits.STOPPED if state.stop_seq else waits.PAUSED)
    action = waits.expire_or_notify(state, now_us)
    if action is not None:
        return action
    if mission.finished:
        return end(state, mission.finished, detail=ending.words(mission))
    if not mission.opened_seq:
        return AwaitEffects() if running else Open()
    found = (
        _orphans(state, mission)
        or _close_items(state, mission)
        or merges.before(mission, running)
        or plans.step(state, mission)
        or tasks.step(state, mission, running)
        or merges.step(state, mission, running)
        or (tasks.begin(state, mission, running) if BASE not in running else None)
        or _documents(state, mission, running, ran)
    )
    if found is not None:
        return found
    if running:
        return AwaitEffects()
    return _rest(state, mission, now_us, ran)


def _cancelled(state: State, mission: MissionState) -> Action:
    first = waits.cancel_first(state)
    if first is not None:
        return first
    if not mission.finished:
        unmet = tuple(name for name in mission.contract.criteria() if name not in mission.passed)
        finished = MissionFinished(
            status="cancelled",
            head=mission.main,
            met=tuple(mission.passed),
            unmet=unmet,
            detail="cancelled by a person",
        )
        return Record((finished,))
    return end(state, "cancelled", detail="cancelled by a person")


def _orphans(state: State, mission: MissionState) -> Action | None:
    """Cancel children that were replaced or whose task is over."""
    lost = []
    for child_id, role in mission.roles.items():
        child = state.children.get(child_id)
        if child is None or child.cancelled or child.status not in (None, "parked"):
            continue
        if role.kind == "planner":
            wanted = mission.planner_id == child_id
        elif not role.task_id:
            wanted = mission.final_judge == child_id
        else:
            task = mission.tasks[role.task_id]
            wanted = task.status not in OVER and child_id in (task.child_id, task.judge_id)
        if not wanted:
            lost.append(child_id)
    return CancelChildren(tuple(lost)) if lost else None


def _close_items(state: State, mission: MissionState) -> Action | None:
    """Close items about changes that will not be merged; then drop flaky criteria that the user removed."""
    handed_in = {tasks.inspection(task) for task in mission.live() if task.status == "handed_in"}
    facts = inspection.stale(state, handed_in) or flakes.quarantined(state)
    return Record(facts) if facts else None


def _documents(state: State, mission: MissionState, running: frozenset[str], ran: frozenset[str]) -> Found:
    """Update the documents when they may be outdated, one update at a time, concurrently with the work."""
    if not mission.policy.documents and mission.policy.lessons == "off":
        return None
    answers = [ask.decided_seq for ask in state.asks.values() if ask.kind == LESSON]
    fresh = max((*(task.since_seq for task in mission.tasks.values()), *answers), default=0)
    effect = f"{DOCUMENTS}:{key_of(mission)}:{max(answers, default=0)}"
    if effect in ran or fresh <= mission.noted_seq or any(each.startswith(DOCUMENTS) for each in running):
        return None
    return Project(effect)


def _rest(state: State, mission: MissionState, now_us: int, ran: frozenset[str]) -> Action | MissionAction:
    """Wait for children, the budget, or the user; or end the mission."""
    waiting = tasks.waiting_for_budget(mission)
    raised = tuple(name for name in waiting if state.children[name].finished_seq < mission.raised_seq)
    if raised:
        return RaiseChildren(raised)
    working = state.live_children()
    if working:
        names = ", ".join(child.name or child.child_id for child in working[:3])
        return _park(state, "child", f"{len(working)} at work ({names})")
    if waiting:
        return _park(state, "budget", f"the budget is used up: {len(waiting)} of its sessions wait for more")
    if mission.astray:
        if LOOK_AGAIN not in ran:
            return Look(LOOK_AGAIN)
        back = f"put it back (git update-ref {mission.ref} {mission.main}), then wake the mission"
        return _park(state, "person", f"{mission.ref} was moved from outside to {mission.astray}; {back}")
    asked = [ask for ask in waits.unanswered(state) if ask.kind not in ("escalation", flakes.KIND, LESSON)]
    if asked:
        return waits.wait(state, now_us, f"a person is asked: {', '.join(ask.item_id for ask in asked)}")
    return ending.step(state, mission, now_us, ran)


def _park(state: State, reason: ParkReason, detail: str) -> End:
    return End(ShiftEnded(status="parked", reason=reason, detail=detail, due_us=waits.deadline_us(state)))
