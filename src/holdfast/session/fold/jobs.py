"""The fold of commands that outlive shifts, and of servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.job import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted
from holdfast.session.context.tokens import estimate
from holdfast.session.state import State
from holdfast.session.state.jobs import Job, ServiceRun

COMMAND_MAX = 200
"""So much of a command is kept, for lists and notes."""

ENDED_KEPT = 32
"""Jobs that are over are forgotten but for so many: a later `job_wait` or `job_log` may ask for one."""


def _started(state: State, fact: JobStarted, event: Event) -> None:
    state.jobs[fact.job_id] = Job(
        fact.job_id,
        fact.call_id,
        fact.hands_id,
        fact.name,
        event.seq,
        event.at_us,
        command=fact.command[:COMMAND_MAX],
        line=bool(fact.line),
        deadline_us=fact.deadline_us,
        until_us=fact.until_us,
    )
    over = [job.job_id for job in state.jobs.values() if job.outcome is not None]
    for job_id in over[:-ENDED_KEPT]:
        del state.jobs[job_id]


def _line(state: State, fact: JobLine, event: Event) -> None:
    job = state.jobs.get(fact.job_id)
    if job is None or job.outcome is not None:  # its end says more
        return
    if fact.deadline:
        job.deadline_us, job.late_seq = None, event.seq
    elif job.line_seq:
        return
    else:
        job.line_seq = event.seq
    state.stirred()
    state.posted(event.seq, estimate(fact.content))


def _ended(state: State, fact: JobEnded, event: Event) -> None:
    job = state.jobs.get(fact.job_id)
    if job is None or job.outcome is not None:
        return
    job.outcome, job.ended_seq = fact.outcome, event.seq
    state.mutated_seq = event.seq
    state.stirred()
    state.posted(event.seq, estimate(fact.content))


def _service_started(state: State, fact: ServiceStarted, event: Event) -> None:
    state.services[fact.name] = ServiceRun(
        fact.name, fact.call_id, fact.hands_id, event.seq, command=fact.command[:COMMAND_MAX]
    )


def _service_ended(state: State, fact: ServiceEnded, event: Event) -> None:
    run = state.services.get(fact.name)
    if run is None or run.hands_id != fact.hands_id:
        return
    del state.services[fact.name]
    if fact.content:
        state.posted(event.seq, estimate(fact.content))


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    JobStarted: _started,
    JobLine: _line,
    JobEnded: _ended,
    ServiceStarted: _service_started,
    ServiceEnded: _service_ended,
}
