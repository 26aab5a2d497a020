"""Jobs and services: starting, stopping, and reading their output (S6 to S12).

Until it starts, a job is a call like any other: `tool.dispatched` names the hands, and their journal is the evidence.
From `job.started` on, it has an id of its own and needs no brain.
"""

from __future__ import annotations

import contextlib
from typing import Any

from holdfast.brain.acts.results import content_of, look, service_key
from holdfast.brain.shift import Shift, alongside
from holdfast.errors import HandsLost
from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Service
from holdfast.facts.tool import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted, ToolResult
from holdfast.hands.base import CallStatus, ExecRequest, Hands
from holdfast.session.context.notes import job_name
from holdfast.session.state import Call
from holdfast.session.state.parts import STANDING, Job, ServiceRun
from holdfast.session.tools.jobs import JOB_START, JOB_STOP, LONGEST_S, SERVICE_START, SERVICE_STOP

STOPS = frozenset({JOB_STOP, SERVICE_STOP})
RUNS = STOPS | {JOB_START, SERVICE_START}
"""Tools that this module runs in hands; `STOPS` are those that end something."""

JOBS_MAX = 16
SERVICES_MAX = 16
"""Maximum services of one session at one time."""

TOLD_BYTES = 8_000
"""Maximum bytes of output in the report of a job's end, half from its head and half from its tail."""

LOG_BYTES = 16_000
"""Maximum bytes of output of a job or service shown at once."""

READY_STEP_S = 30.0
PIECE_BYTES = 1 << 20


def refusal(shift: Shift, use: AgentToolUse) -> str:
    """Return the reason, as text for the model, why a job or service may not start now; empty if it may."""
    state, name = shift.state, str(use.input.get("name", ""))
    if use.name == JOB_START and len(state.live_jobs()) >= JOBS_MAX:
        return f"Not started: {JOBS_MAX} jobs run already, which is the cap. Wait for one of them or stop it first."
    if use.name == SERVICE_START and name in state.services:
        return f"Not started: service {name} runs already. Stop it first, or give this one another name."
    if use.name == SERVICE_START and len(state.services) >= SERVICES_MAX:
        return f"Not started: {SERVICES_MAX} services run already, which is the cap. Stop one of them first."
    return ""


async def run(shift: Shift, hands: Hands, use: AgentToolUse) -> None:
    """Run a dispatched call of these tools. Raises `HandsLost`."""
    if use.name in STOPS:
        await stop(shift, use)
        return
    await hands.start(shift.fence, use.call_id, _request(use))
    await adopt(shift, hands, use)


def _request(use: AgentToolUse) -> ExecRequest:
    value = use.input
    if use.name == JOB_START:
        wanted = {"name": value["name"], "command": value["command"], "line": value.get("line", "")}
        return ExecRequest("job", wanted, float(value["timeout_s"]), output_cap=TOLD_BYTES)
    service = Service(
        name=str(value["name"]),
        command=str(value["command"]),
        health=str(value.get("health", "")),
        ready_s=float(value.get("ready_s", 60.0)),
    )
    return _of_service(service)


def _of_service(service: Service) -> ExecRequest:
    wanted = {
        "name": service.name,
        "command": service.command,
        "health": service.health,
        "ready_s": service.ready_s,
    }
    return ExecRequest("service", wanted, LONGEST_S, output_cap=TOLD_BYTES)


async def adopt(shift: Shift, hands: Hands, use: AgentToolUse, *, reconciled: bool = False) -> None:
    """Record a job or service that the hands have started, and end its call."""
    if use.name == SERVICE_START:
        await _adopt_service(shift, hands, use, reconciled=reconciled)
        return
    value, now_us = use.input, shift.doors.clock.now_us()
    deadline_s = value.get("deadline_s")
    started = JobStarted(
        job_id=f"job_{use.call_id}",
        call_id=use.call_id,
        hands_id=hands.identity.hands_id,
        name=str(value["name"]),
        command=str(value["command"]),
        line=str(value.get("line", "")),
        deadline_us=None if deadline_s is None else now_us + int(deadline_s * 1e6),
        until_us=now_us + int(float(value["timeout_s"]) * 1e6),
    )
    content = f"Job {started.job_id} ({started.name}) is at work. Its end will be told to you."
    await shift.fact(started, ToolResult(call_id=use.call_id, outcome="ok", content=content, reconciled=reconciled))


async def _adopt_service(shift: Shift, hands: Hands, use: AgentToolUse, *, reconciled: bool) -> None:
    name = str(use.input["name"])

    async def end_when_stopped() -> None:
        await shift.until_stopped()
        await hands.kill(shift.fence, use.call_id)

    request = _request(use)
    status = await alongside(lambda: _until_ready(shift, hands, use.call_id, request), end_when_stopped)
    facts: list[Fact] = []
    if _runs(status):
        facts.append(_service_started(hands, use.call_id, request))
        outcome, content = "ok", f"Service {name} runs."
    elif status.result is not None and status.result.cancelled:
        outcome, content = "cancelled", f"Service {name} was stopped before it was ready."
    else:
        outcome, content = "error", f"Service {name} was not ready. {_why_not(status)}"
    result = ToolResult(call_id=use.call_id, outcome=outcome, content=content, reconciled=reconciled)  # type: ignore[arg-type]
    await shift.fact(*facts, result)


def _service_started(hands: Hands, call_id: str, request: ExecRequest) -> ServiceStarted:
    value = request.input
    return ServiceStarted(
        name=value["name"],
        call_id=call_id,
        hands_id=hands.identity.hands_id,
        command=value["command"],
        health=value["health"],
    )


def _runs(status: CallStatus) -> bool:
    return status.state == "running" and status.ready in ("", "yes")


def _why_not(status: CallStatus) -> str:
    said = content_of(status.result) if status.result is not None else status.problem or "its health command failed"
    return f"It was ended. What it said last:\n{said}"


async def _until_ready(shift: Shift, hands: Hands, call_id: str, request: ExecRequest) -> CallStatus:
    """Wait until a service is ready, and kill one that does not become ready. Returns its status."""
    status = await hands.status(shift.fence, call_id)
    while status.state == "running" and status.ready == "waiting":
        status = await hands.status(shift.fence, call_id, wait_s=READY_STEP_S)
    if status.state == "running" and not _runs(status):
        await _end(shift, hands, call_id)
    if status.state == "unknown":
        raise HandsLost(f"the hands {hands.identity.hands_id} are gone")
    return status


async def start_service(shift: Shift, hands: Hands, service: Service) -> str:
    """Start a service of the session's environment in these hands; it runs in all hands of the session.

    Returns the reason why it is not ready, empty if it is. Idempotent. Raises `HandsLost`.
    """
    run_here = shift.state.services.get(service.name)
    if run_here is not None and run_here.hands_id == hands.identity.hands_id:
        return ""
    problem = await stand_up(shift, hands, service)
    if not problem:
        await shift.fact(_service_started(hands, f"{STANDING}{service.name}", _of_service(service)))
    return problem


async def stand_up(shift: Shift, hands: Hands, service: Service) -> str:
    """Start a service in hands; return the reason why it is not ready, empty if it is. Raises `HandsLost`."""
    call_id, request = f"{STANDING}{service.name}", _of_service(service)
    await hands.start(shift.fence, call_id, request)
    status = await _until_ready(shift, hands, call_id, request)
    return "" if _runs(status) else _why_not(status)


async def stop(shift: Shift, use: AgentToolUse) -> None:
    """Stop a job or a service, and report its end. Idempotent: one that has ended does not change."""
    content = await (_stop_job if use.name == JOB_STOP else _stop_service)(shift, use.input)
    outcome = "error" if content.startswith("There is no") else "ok"
    await shift.fact(ToolResult(call_id=use.call_id, outcome=outcome, content=content))  # type: ignore[arg-type]


async def _stop_job(shift: Shift, value: dict[str, Any]) -> str:
    job = shift.state.jobs.get(str(value["job_id"]))
    if job is None:
        return f"There is no job {value['job_id']}."
    if job.outcome is None:
        await _end_call(shift, job.hands_id, job.call_id)
        await look(shift)
    return await _told(shift, shift.state.jobs[job.job_id])


async def _stop_service(shift: Shift, value: dict[str, Any]) -> str:
    service = shift.state.services.get(str(value["name"]))
    if service is None:
        return f"There is no service {value['name']} that runs."
    await _end_call(shift, service.hands_id, service.call_id)
    await shift.post(service_key(service), _service_ended(service, "stopped"))
    return f"Service {service.name} is stopped."


def _service_ended(service: ServiceRun, reason: str) -> ServiceEnded:
    return ServiceEnded(name=service.name, hands_id=service.hands_id, reason=reason)


async def _end_call(shift: Shift, hands_id: str, call_id: str) -> None:
    """Kill a call if its hands are alive, and wait for its end."""
    identity = shift.state.hands_known.get(hands_id)
    if identity is not None:
        with contextlib.suppress(HandsLost):  # a call in lost hands has ended
            await _end(shift, await shift.doors.hands.attach(identity), call_id)


async def _end(shift: Shift, hands: Hands, call_id: str) -> None:
    await hands.kill(shift.fence, call_id)
    await hands.wait(shift.fence, call_id)


async def end_all(shift: Shift) -> None:
    """End everything that still runs, because the session is over."""
    for job in shift.state.live_jobs():
        await _end_call(shift, job.hands_id, job.call_id)
    await end_services(shift, "the session ended")
    await look(shift)


async def end_services(shift: Shift, reason: str, *, standing_only: bool = False) -> None:
    """End services: all of them, or only the environment's."""
    for service in list(shift.state.services.values()):
        if service.standing or not standing_only:
            await _end_call(shift, service.hands_id, service.call_id)
            await shift.post(service_key(service), _service_ended(service, reason))


# --- calls that the harness answers --------------------------------------------------------------


async def report(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """End a wait with the news of the awaited jobs, and those that still run."""
    lines = [await _told(shift, shift.state.jobs[each]) for each in call.waits_for if each in shift.state.jobs]
    lines += [f"[There is no job {each}.]" for each in call.waits_for if each not in shift.state.jobs]
    await _answer(shift, call, "\n\n".join(lines) or "[No job runs.]")


async def _told(shift: Shift, job: Job) -> str:
    """Describe a job: its news that no request has shown yet, or that it has ended or still runs."""
    pending = {item.seq for item in shift.state.pending}
    if job.ended_seq:
        fact = await shift.body(job.ended_seq) if job.ended_seq in pending else None
        return fact.content if isinstance(fact, JobEnded) else f"[Job {job_name(job)} ended before: {job.outcome}.]"
    facts = [await shift.body(seq) for seq in (job.line_seq, job.late_seq) if seq in pending]
    lines = [fact.content for fact in facts if isinstance(fact, JobLine)]
    return "\n".join([*lines, f"[Job {job_name(job)} still runs.]"])


async def log(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Return the output of a job or service: the latest part, or from a position on."""
    found: Job | ServiceRun | None
    if "job_id" in value:
        named, found = f"job {value['job_id']}", shift.state.jobs.get(str(value["job_id"]))
    else:
        named, found = f"service {value['name']}", shift.state.services.get(str(value["name"]))
    if found is None:
        await _answer(shift, call, f"There is no {named}.", ok=False)
        return
    await _show(shift, call, named, found, value.get("after"))


async def _show(shift: Shift, call: Call, named: str, found: Job | ServiceRun, after: int | None) -> None:
    call_id, identity = found.call_id, shift.state.hands_known.get(found.hands_id)
    if identity is None:
        gone = f"Nothing is kept any more of what {named} printed; what was told at its end is all there is."
        await _answer(shift, call, gone, ok=False)
        return
    hands = await shift.doors.hands.attach(identity)
    try:
        if after is None:
            begin, text, end = await _latest(shift, hands, call_id)
        else:
            piece = await hands.read(shift.fence, call_id, after, max_bytes=LOG_BYTES)
            begin, text, end = piece.seq, piece.text, piece.next_seq
    except HandsLost as error:
        await _answer(shift, call, f"What {named} printed cannot be read: {error}", ok=False)
        return
    head = f"[What {named} printed, from position {begin} to {end}.]" if text else f"[{named}: nothing after {end}.]"
    await _answer(shift, call, f"{head}\n{text}" if text else head)


async def _latest(shift: Shift, hands: Hands, call_id: str) -> tuple[int, str, int]:
    """Return the end of the kept output; its position is found by reading."""
    begin, text, after = 0, "", 0
    while True:
        piece = await hands.read(shift.fence, call_id, after, max_bytes=PIECE_BYTES)
        text = text + piece.text if piece.seq == after else piece.text
        if len(text) > LOG_BYTES:
            text = text[-LOG_BYTES:]
        if piece.ended or piece.next_seq <= after or not piece.text:
            end = piece.next_seq
            begin = max(0, end - len(text.encode()))
            return begin, text, end
        after = piece.next_seq


async def _answer(shift: Shift, call: Call, content: str, *, ok: bool = True) -> None:
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok" if ok else "error", content=content))


async def stop_nothing(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """End a call that would stop something when nothing runs."""
    job = shift.state.jobs.get(str(value.get("job_id", "")))
    if job is not None:
        await _answer(shift, call, await _told(shift, job))
        return
    named = f"job {value['job_id']}" if "job_id" in value else f"service {value['name']}"
    await _answer(shift, call, f"There is no {named} that runs.", ok=False)
