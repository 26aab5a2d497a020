"""Rules of every mission world: children, caps, and money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.facts.mission import MissionReplanned, PlannerOpened
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.task import JudgeOpened, RepoConflicted, TaskEnded, TaskHandedIn, TaskRefused, TaskStarted
from holdfast.kinds.mission.conductor.tasks import CONFLICTS_MAX
from holdfast.sim.missions.world import MissionHistory


def children_are_opened_once(history: MissionHistory) -> Iterator[str]:
    """S4: no role is opened twice for the same purpose, and each recorded child exists once."""
    what: Counter[tuple[object, ...]] = Counter()
    for _, started in history.of(TaskStarted):
        what["worker", started.task_id, started.attempt] += 1
    for event, judge in history.of(JudgeOpened):
        what["judge", judge.task_id, judge.tree, judge.attempt, _handed_in(history, judge.task_id, event.seq)] += 1
    for _, planner in history.of(PlannerOpened):
        what["planner", planner.round, planner.task_id, planner.attempt] += 1
    opened = [fact.child_id for _, fact in history.of(ChildOpened)]
    what.update(("child", each) for each in opened)
    for words, count in what.items():
        if count > 1:
            yield f"{' '.join(map(str, words))} was opened {count} times"
    born = [each for each in history.world.sessions if each != history.world.mission_id]
    if sorted(born) != sorted(opened):
        yield f"{len(opened)} children were announced, {len(born)} are there"


def _handed_in(history: MissionHistory, task_id: str, before: int) -> int:
    """Count the submissions for a task before a position: each is judged again.

    Without a task, count the merges: a later merge may lead back to an earlier tree.
    """
    if not task_id:
        return sum(event.seq < before for event, _ in history.merged())
    return sum(fact.task_id == task_id for _, fact in history.of(TaskHandedIn, before))


def caps_hold(history: MissionHistory) -> Iterator[str]:
    """The policy bounds iterations, attempts, judges, and plans."""
    policy = history.policy
    conflicts = Counter(fact.task_id for _, fact in history.of(RepoConflicted) if fact.task_id)
    started = Counter(fact.task_id for _, fact in history.of(TaskStarted))
    for task, count in started.items():
        if count > policy.max_attempts + conflicts[task] or conflicts[task] > CONFLICTS_MAX + 1:
            yield f"task {task} had {count} workers and {conflicts[task]} conflicts"
    for child, count in Counter(fact.child_id for _, fact in history.of(TaskRefused)).items():
        if count > policy.max_iterations:
            yield f"the worker {child} was sent back {count} times"
    judged = Counter(
        (fact.task_id, fact.tree, _handed_in(history, fact.task_id, event.seq))
        for event, fact in history.of(JudgeOpened)
    )
    for (task, tree, _), count in judged.items():
        if count > policy.judge_tries * (1 if task else 1 + history.approvals):
            yield f"{count} judges were asked about {task or 'all of it'} on {tree[:7]}"
    plans = {fact.round for _, fact in history.of(MissionReplanned) if fact.round}
    if len(plans) > policy.max_replans + history.approvals:
        yield f"{len(plans)} more plans were made, {policy.max_replans} and {history.approvals} are the cap"


def spend_is_shared(history: MissionHistory) -> Iterator[str]:
    """S15: the spend and reservations of a mission and all its children never exceed its budget."""
    world = history.world
    cap, spent, held = world.cap_pico, 0, dict[tuple[str, int], int]()
    for commit in world.record.commits:
        for event in commit.events:
            match event.fact:
                case SessionUpdated(budget_pico=int() as raised) if event.session_id == world.mission_id:
                    cap = raised
                case ModelRequestStart(reserved_pico=int() as amount):
                    held[event.session_id, event.seq] = amount
                case ModelRequestEnd() as end:
                    held.pop((event.session_id, end.request_seq), None)
                    spent += end.cost_pico or 0
        together = spent + sum(held.values())
        if cap is not None and together > cap:
            yield f"{together} pico-dollars are held or spent at {commit.at_s:.3f}, the budget is {cap}"
            return


def few_are_at_work(history: MissionHistory) -> Iterator[str]:
    """No more workers run at once than the policy allows."""
    at_work: set[str] = set()
    task_of: dict[str, str] = {}
    for event in history.events:
        match event.fact:
            case TaskStarted() as started:
                task_of[started.child_id] = started.task_id
                at_work.add(started.task_id)
            case ChildMessaged(child_id=child_id) if child_id in task_of:
                at_work.add(task_of[child_id])
            case ChildFinished(child_id=child_id, status=status) if child_id in task_of and status != "parked":
                at_work.discard(task_of[child_id])
            case TaskEnded(task_id=task_id):
                at_work.discard(task_id)
        if len(at_work) > history.policy.workers:
            yield f"{', '.join(sorted(at_work))} are at work at {event.seq}, {history.policy.workers} may be"
            return


ALL = (children_are_opened_once, caps_hold, few_are_at_work, spend_is_shared)
