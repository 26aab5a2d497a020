"""What a session does about its commands that outlive shifts. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.facts.job import JobLine
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, End, Record, RunHarness
from holdfast.session.context.inputs import arrived
from holdfast.session.context.notes import job_name
from holdfast.session.decide.children import due, is_over
from holdfast.session.state import Call, State
from holdfast.session.state.jobs import Job
from holdfast.session.tools.jobs import JOB_STOP, JOB_WAIT, SERVICE_STOP

LATE_US = 120_000_000
"""A job without an end so long after its latest one is asked after: whoever would have told of it may be gone."""

WAITS = frozenset({"job", "timer", "person", "child", "provider"})
"""Reasons to park under which a job's deadline counts: in the others, nothing would come of waking up."""


__all__ = ["JOB_WAIT", "is_about_nothing", "step", "wait_for", "waiting", "with_due"]


def is_about_nothing(state: State, call: Call) -> bool:
    """Whether a call would stop what runs nowhere: no hands need be made to say so."""
    return call.name in (JOB_STOP, SERVICE_STOP) and not state.hands_at_work()


def step(state: State, now_us: int) -> Record | None:
    """Tell of the deadlines that have passed."""
    late = [
        job
        for job in state.live_jobs()
        if job.deadline_us is not None and is_over(state, job.seq, job.deadline_us, now_us)
    ]
    if not late:
        return None
    told = "[Job {} still runs, and its deadline has passed.]"
    return Record(tuple(JobLine(job_id=job.job_id, content=told.format(job_name(job)), deadline=True) for job in late))


def wait_for(state: State, call: Call, now_us: int) -> Action:
    """Go on with a call that waits for jobs: report, or wait without a process."""
    over = call.until_us is not None and is_over(state, call.seq, call.until_us, now_us, call.at_us)
    came_in = arrived(state, call)
    if over or came_in or not call.waits_for or any(_has_news(state, job_id) for job_id in call.waits_for):
        return RunHarness(call.call_id)
    jobs = [state.jobs[job_id] for job_id in call.waits_for]
    due_us = None if call.until_us is None else due(state, call.seq, call.until_us, call.at_us)
    return End(ShiftEnded(status="parked", reason="job", detail=waiting(jobs), due_us=due_us))


def _has_news(state: State, job_id: str) -> bool:
    """Whether there is something to tell of a job that no request has shown yet; of one that is over always."""
    job = state.jobs.get(job_id)
    if job is None or job.outcome is not None:
        return True
    told = {item.seq for item in state.pending}
    return bool(told & {job.line_seq, job.late_seq})


def waiting(jobs: list[Job]) -> str:
    """Whom a session waits for, in words."""
    first = jobs[0]
    since = datetime.fromtimestamp(first.started_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    return f"waits for job {job_name(first)}, at work since {since}{others}"


def with_due(state: State, action: Action, now_us: int) -> Action:
    """A session that parks is woken by the deadlines of its jobs too, and looks after one that nobody told of."""
    if not isinstance(action, End) or action.fact.status != "parked" or action.fact.reason not in WAITS or state.paused:
        return action
    times = [each for job in state.live_jobs() for each in _times(state, job, now_us)]
    if not times:
        return action
    ended = action.fact
    due_us = min([*times, *([ended.due_us] if ended.due_us is not None else [])])
    fact = ShiftEnded(status=ended.status, reason=ended.reason, detail=ended.detail, due_us=due_us)
    return End(fact, action.before)


def _times(state: State, job: Job, now_us: int) -> list[int]:
    times = []
    if job.deadline_us is not None:
        times.append(due(state, job.seq, job.deadline_us))
    if job.until_us is not None:
        times.append(max(due(state, job.seq, job.until_us), now_us) + LATE_US)
    return times
