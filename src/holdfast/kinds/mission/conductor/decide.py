"""What a mission does next: the conductor, which is code and asks no model. Pure.

The order of things is here; what each of them is, stands in a module of its own: `tasks` (from a plan to a branch that
may be merged), `merges` (the main line), `plans` (planners and their plans), `ending`.
"""

from __future__ import annotations

from holdfast.facts.mission import MissionFinished
from holdfast.facts.shift import ParkReason, ShiftEnded
from holdfast.kinds.mission.check import flakes
from holdfast.kinds.mission.conductor import ending, merges, plans, tasks
from holdfast.kinds.mission.conductor.actions import AwaitEffects, Look, MissionAction, Open, Project
from holdfast.kinds.mission.documents import key_of
from holdfast.kinds.mission.fold.state import BASE, OVER, MissionState, of_mission
from holdfast.kinds.mission.ratchet import inspection
from holdfast.session.actions import Action, CancelChildren, End, Record
from holdfast.session.decide import children, end, people
from holdfast.session.state import State

LOOK_AGAIN = "look:astray"
"""The effect that sees whether a main line that somebody moved is back."""


LESSON = "lesson"
"""The kind of item that asks about a line for AGENTS.md. Nothing waits for its answer."""

DOCUMENTS = "documents"


def decide(
    state: State, now_us: int, running: frozenset[str] = frozenset(), ran: frozenset[str] = frozenset()
) -> Action | MissionAction:
    """The next action of the conductor that holds the mission's lease.

    `running` are the effects that are under way in this shift, `ran` those that came to their end in it.
    """
    mission = of_mission(state)
    if state.cancelled:
        return _cancelled(state, mission)
    if state.paused:
        return end(state, "parked", "person", people.STOPPED if state.stop_seq else people.PAUSED)
    action = people.step(state, now_us)
    if action is not None:
        return action
    if mission.finished:
        return end(state, mission.finished, detail=ending.words(mission))
    if not mission.opened_seq:
        return AwaitEffects() if running else Open()
    found = (
        _orphans(state, mission)
        or _unwanted(state, mission)
        or _quarantine(state)
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
    first = children.cancel_first(state)
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
    """Children that work for what is over, or were followed by others, are ended."""
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


def _unwanted(state: State, mission: MissionState) -> Action | None:
    """Questions about changes that are not to be merged any more are closed."""
    facts = inspection.stale(state, {tasks.inspection(task) for task in mission.live() if task.status == "handed_in"})
    return Record(facts) if facts else None


def _quarantine(state: State) -> Action | None:
    """A criterion whose check a person took out for being flaky counts no longer."""
    facts = flakes.quarantined(state)
    return Record(facts) if facts else None


def _documents(
    state: State, mission: MissionState, running: frozenset[str], ran: frozenset[str]
) -> MissionAction | None:
    """Bring the documents up to date when they may have become others; one after the other, beside the work."""
    if not mission.policy.documents and mission.policy.lessons == "off":
        return None
    answers = [ask.decided_seq for ask in state.asks.values() if ask.kind == LESSON]
    fresh = max((*(task.since_seq for task in mission.tasks.values()), *answers), default=0)
    effect = f"{DOCUMENTS}:{key_of(mission)}:{max(answers, default=0)}"
    if effect in ran or fresh <= mission.noted_seq or any(each.startswith(DOCUMENTS) for each in running):
        return None
    return Project(effect)


def _rest(state: State, mission: MissionState, now_us: int, ran: frozenset[str]) -> Action | MissionAction:
    """Nothing can be done now: wait for those who work, for money, for a person; or it is over."""
    more = tasks.resume_children(state, mission)
    if more is not None:
        return more
    working = state.live_children()
    if working:
        names = ", ".join(child.name or child.child_id for child in working[:3])
        return _park(state, "child", f"{len(working)} at work ({names})")
    if tasks.waiting_for_budget(mission):
        return _park(state, "budget", tasks.budget_detail(mission))
    if mission.astray:
        if LOOK_AGAIN not in ran:
            return Look(LOOK_AGAIN)
        back = f"put it back (git update-ref {mission.ref} {mission.main}), then wake it"
        return _park(state, "person", f"{mission.ref} was moved by somebody to {mission.astray}; {back}")
    asked = [ask for ask in people.unanswered(state) if ask.kind not in ("escalation", flakes.KIND, LESSON)]
    if asked:
        return people.wait(state, now_us, f"a person is asked: {', '.join(ask.item_id for ask in asked)}")
    return ending.step(state, mission, now_us, ran)


def _park(state: State, reason: ParkReason, detail: str) -> End:
    return End(ShiftEnded(status="parked", reason=reason, detail=detail, due_us=people.deadline_us(state)))
