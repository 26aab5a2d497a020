"""Results of calls, and news of jobs and services (S3, S8, S10).

The first process to find news posts it: a brain at the start of its shift, the command that a supervisor runs when a
job has news, or a worker that polls silent hands. All use the same keys, so it is posted once.
"""

from __future__ import annotations

import anyio
import msgspec

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.shift import Shift, alongside
from holdfast.facts.tool import JobEnded, JobLine, ServiceEnded
from holdfast.hands.base import CallStatus, ExecResult, Hands, Provider
from holdfast.session.context.notes import job_name
from holdfast.session.state import State
from holdfast.session.state.parts import Job, JobOutcome, ServiceRun

GONE = (
    "[Nobody knows how job {} ended: the hands that ran it are gone and left no record. It may have done all of its "
    "work, a part or nothing, and it was not repeated. Look at the actual state before you go on.]"
)


class News(msgspec.Struct, frozen=True):
    """An event to post, and its idempotency key."""

    key: str
    fact: JobEnded | JobLine | ServiceEnded


async def gather(provider: Provider, state: State, epoch: int) -> list[News]:
    """Return news of a session's jobs and services that the hands have and the log lacks.

    Raises `HandsError` if the hands do not answer, `Fenced` if a later brain owns them.
    """
    found: list[News] = []
    hands: dict[str, Hands] = {}
    running: list[Job | ServiceRun] = [*state.live_jobs(), *state.services.values()]
    for each in running:
        identity = state.hands_known.get(each.hands_id)
        if identity is not None and each.hands_id not in hands:
            hands[each.hands_id] = await provider.attach(identity)
        known = hands.get(each.hands_id)
        status = CallStatus("unknown") if known is None else await known.status(epoch, each.call_id)
        found += _of_job(each, status) if isinstance(each, Job) else _of_service(each, status)
    return found


async def look(shift: Shift) -> None:
    """Post all news of jobs and services."""
    if not shift.state.live_jobs() and not shift.state.services:
        return
    for news in await gather(shift.doors.hands, shift.state, shift.fence):
        await shift.post(news.key, news.fact)


def ended_key(job: Job) -> str:
    """Return the key of a job's end."""
    return f"job:{job.hands_id}:{job.call_id}:ended"


def service_key(run: ServiceRun) -> str:
    """Return the key of a service's end."""
    return f"service:{run.hands_id}:{run.call_id}:ended"


def _of_job(job: Job, status: CallStatus) -> list[News]:
    found: list[News] = []
    if job.line and not job.line_seq and (status.line is not None or (status.problem and status.state == "running")):
        said = f"printed the line:\n{status.line}" if status.line is not None else f"is not watched: {status.problem}"
        fact = JobLine(job_id=job.job_id, content=f"[Job {job_name(job)} {said}]")
        found.append(News(f"job:{job.hands_id}:{job.call_id}:line", fact))
    if status.result is not None:
        found.append(News(ended_key(job), _ended(job, status.result)))
    elif status.state != "running":
        gone = JobEnded(job_id=job.job_id, outcome="unknown", content=GONE.format(job_name(job)))
        found.append(News(ended_key(job), gone))
    return found


def _ended(job: Job, result: ExecResult) -> JobEnded:
    took_s = result.duration_ms / 1_000
    head = f"[Job {job_name(job)} is over after {took_s:.0f} s: {ending(result)}.]"
    output = content_of(msgspec.structs.replace(result, cancelled=False, timed_out=False, exit_code=None, signal=None))
    return JobEnded(
        job_id=job.job_id,
        outcome=_outcome(result),
        content=f"{head}\n<job_output>\n{output}\n</job_output>",
        exit_code=result.exit_code,
        duration_ms=result.duration_ms,
    )


def _outcome(result: ExecResult) -> JobOutcome:
    if result.cancelled:
        return "stopped"
    if result.timed_out:
        return "timeout"
    return "ok" if result.ok else "error"


def _of_service(run: ServiceRun, status: CallStatus) -> list[News]:
    if status.state == "running":
        return []
    how = f"it ended by itself ({ending(status.result)})" if status.result is not None else "its hands are gone"
    said = f"\n{content_of(status.result)}" if status.result is not None else ""
    then = "It is started again with the next hands" if run.standing else "Start it again if you need it"
    content = f"[Service {run.name} does not run any more: {how}. {then}.]{said}"
    return [News(service_key(run), ServiceEnded(name=run.name, hands_id=run.hands_id, reason=how, content=content))]


_LIMITS = {
    "memory": "ended for its memory: all that runs here together may use only so much; use less at a time",
    "processes": "ended for its processes: all that runs here together may be only so many; start fewer at a time",
    "disk": "ended for disk space: a file, or all that was added here, got too large; remove what is not needed",
    "inodes": "ended for the number of its files: too many were added here; remove what is not needed",
    "cpu": "ended for its processor time",
}


def content_of(result: ExecResult) -> str:
    """Return the output, with notes about its end in brackets."""
    lines = [result.output] if result.output else []
    return "\n".join(lines + [f"[{note}]" for note in _notes(result)]) or "[no output]"


def ending(result: ExecResult) -> str:
    """Describe the end of a command in a few words."""
    if result.cancelled:
        return "stopped"
    if result.timed_out:
        return "ended at its timeout"
    if result.limit:
        return f"ended at its limit of {result.limit}"
    if result.signal:
        return f"ended by signal {result.signal}"
    return f"exit status {result.exit_code or 0}"


def _notes(result: ExecResult) -> list[str]:
    notes = []
    if result.cancelled:
        notes.append("stopped by a person before it ended")
    if result.timed_out:
        notes.append("ended at its timeout")
    elif result.signal:
        notes.append(f"ended by signal {result.signal}")
    elif result.exit_code:
        notes.append(f"exit status {result.exit_code}")
    if result.truncated:
        where = f"; the whole output is in {result.output_path}" if result.output_path else ""
        notes.append(f"{result.bytes_total} bytes of output, the middle is left out{where}")
    if result.killed:
        notes.append(f"{result.killed} processes left behind were ended")
    if result.limit:
        notes.append(("a process of it was " if result.ok else "") + _LIMITS[result.limit])
    return notes


async def wait(shift: Shift, hands: Hands, call_id: str) -> ExecResult:
    """Wait for the end of a call; a user's stop kills it (S14). Raises `HandsLost`."""

    async def kill_when_stopped() -> None:
        await shift.until_stopped()
        await hands.kill(shift.fence, call_id)

    async def watch() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(kill_when_stopped)
            group.start_soon(egress_act.keep_pushed, shift)

    return await alongside(lambda: hands.wait(shift.fence, call_id), watch)
