"""Commands that run longer than a shift, and servers that run beside the work."""

from __future__ import annotations

from typing import Literal

from holdfast.facts.base import Fact


class JobStarted(Fact, frozen=True, tag="job.started"):
    """A command was started that goes on without a brain. `call_id` asked for it, `hands_id` run it.

    `line`, when not empty, is a regular expression: the first line of its output that it matches wakes the session.
    `deadline_us` is when the session is woken if nothing else does, `until_us` when the job ends at the latest.
    """

    job_id: str
    call_id: str
    hands_id: str
    name: str = ""
    command: str = ""
    line: str = ""
    deadline_us: int | None = None
    until_us: int | None = None


class JobLine(Fact, frozen=True, tag="job.line"):
    """The line that was waited for came, or the job's `deadline` did. `content` is what the model is told."""

    wakes = True

    job_id: str
    content: str
    deadline: bool = False


class JobEnded(Fact, frozen=True, tag="job.ended"):
    """A job is over, or nobody can say how it is (`unknown`). `content` is what the model is told."""

    wakes = True

    job_id: str
    outcome: Literal["ok", "error", "timeout", "stopped", "unknown"]
    content: str
    exit_code: int | None = None
    duration_ms: float | None = None


class ServiceStarted(Fact, frozen=True, tag="service.started"):
    """A server runs in these hands until it is stopped or they go."""

    name: str
    call_id: str
    hands_id: str
    command: str = ""
    health: str = ""


class ServiceEnded(Fact, frozen=True, tag="service.ended"):
    """A server is gone: stopped, ended by itself, or lost with its hands.

    `content` is what the model is told; empty when it asked for it, or nobody is left to be told.
    """

    name: str
    hands_id: str
    reason: str
    content: str = ""
