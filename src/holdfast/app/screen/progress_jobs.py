"""Events of jobs and services as short lines for people."""

from __future__ import annotations

from holdfast.facts.base import Fact
from holdfast.facts.tool import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted


def about_jobs(fact: Fact) -> str:
    """What happened, empty for what is about no job and no service."""
    match fact:
        case JobStarted(job_id=job_id, name=name):
            return f"job {name} ({job_id}) is at work; it needs no brain"
        case JobLine(job_id=job_id, deadline=deadline):
            return f"the deadline of {job_id} passed, it still runs" if deadline else f"{job_id} printed its line"
        case JobEnded(job_id=job_id, outcome=outcome, exit_code=code):
            status = f", exit status {code}" if code else ""
            return f"job {job_id} is over: {outcome}{status}"
        case ServiceStarted(name=name):
            return f"service {name} runs"
        case ServiceEnded(name=name, reason=reason):
            return f"service {name} is gone: {reason}"
        case _:
            return ""
