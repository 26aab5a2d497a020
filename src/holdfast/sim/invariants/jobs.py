"""Invariants of commands that outlive their shifts: run once, told once, truly, at no cost, in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.facts.job import JobEnded, JobLine, JobStarted
from holdfast.facts.model import AgentToolUse
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolDispatched
from holdfast.session.context.conversation import TextPart, ToolResultPart
from holdfast.sim.world import Session, World

QUIET_S = 900.0
"""A brain that writes nothing for longer waits for something: requests, commands and frozen processes take less."""

OVER = ("done", "failed", "cancelled")


def jobs_run_once(world: World) -> Iterator[str]:
    """S6, S12: a job's command runs at most once, and a job that is told as done ran."""
    times = Counter(effect.key for effect in world.record.effects)
    for key, count in times.items():
        if count > 1:
            yield f"the command of {key} ran {count} times"
    for session in world.sessions.values():
        started = [event.fact for event in world.events[session.session_id] if isinstance(event.fact, JobStarted)]
        names = Counter(fact.job_id for fact in started)
        yield from (f"{job_id} was started {count} times" for job_id, count in names.items() if count > 1)
        ends = _ends(world, session)
        for fact in started:
            if fact.job_id in ends and ends[fact.job_id][0].outcome == "ok" and not times[fact.name]:
                yield f"{fact.job_id} is told as done, and its command never ran"


def _ends(world: World, session: Session) -> dict[str, list[JobEnded]]:
    out: dict[str, list[JobEnded]] = {}
    for event in world.events[session.session_id]:
        if isinstance(event.fact, JobEnded):
            out.setdefault(event.fact.job_id, []).append(event.fact)
    return out


def jobs_are_told_once(world: World) -> Iterator[str]:
    """S3: at rest each job of a session that is over has one end in the log, and the model reads it once."""
    for session in world.sessions.values():
        ends = _ends(world, session)
        rests = world.beside.rows[session.session_id].status in OVER
        for event in world.events[session.session_id]:
            if isinstance(event.fact, JobStarted) and rests and event.fact.job_id not in ends:
                yield f"{event.fact.job_id} has no end, and its session is over"
            if isinstance(event.fact, JobEnded):
                yield from _shown(world, session, event.seq, event.fact)
        yield from (f"{job_id} ended {len(told)} times" for job_id, told in ends.items() if len(told) > 1)


def _shown(world: World, session: Session, seq: int, fact: JobEnded) -> Iterator[str]:
    """How often the latest request after an end shows it."""
    later = [each for each in world.record.served if each.session_id == session.session_id and each.start_seq > seq]
    if not later:
        return
    text = "\n".join(
        part.text if isinstance(part, TextPart) else part.content
        for message in later[-1].request.messages
        for part in message.parts
        if isinstance(part, TextPart | ToolResultPart)
    )
    if text.count(fact.content) != 1:
        yield f"the end of {fact.job_id} at {seq} is shown {text.count(fact.content)} times"


def job_ends_are_true(world: World) -> Iterator[str]:
    """S8, S10: how a job ended is what its hands say; unknown only when they cannot."""
    for said in world.record.ends:
        if said.outcome == "unknown" and said.state not in ("gone", "unknown"):
            yield f"{said.job_id} is told as unknown, and its hands say {said.state}"
        if said.outcome != "unknown" and said.state != "finished":
            yield f"{said.job_id} is told as {said.outcome}, and its hands say {said.state}"


def no_brain_waits_for_a_job(world: World) -> Iterator[str]:
    """A job costs no brain: whoever has nothing else to do parks."""
    for session in world.sessions.values():
        quiet: dict[str, float] = {}
        at_work: set[str] = set()
        for commit in (each for each in world.record.commits if each.session_id == session.session_id):
            gap_s = commit.at_s - quiet.get(commit.who, commit.at_s)
            if at_work and gap_s > QUIET_S and commit.who not in world.record.slept:
                yield f"a brain of {session.script.name} did nothing for {gap_s:.0f} s, with a job at work"
            if commit.kind != "post":
                quiet[commit.who] = commit.at_s
            for event in commit.events:
                match event.fact:
                    case ShiftEnded():
                        quiet.pop(commit.who, None)
                    case ToolDispatched(call_id=call_id) if call_id in _starts(world, session):
                        at_work.add(call_id)
                    case JobEnded(job_id=job_id):
                        at_work.discard(job_id.removeprefix("job_"))


def _starts(world: World, session: Session) -> set[str]:
    """The calls of a session that start jobs."""
    uses = (event.fact for event in world.events[session.session_id])
    return {fact.call_id for fact in uses if isinstance(fact, AgentToolUse) and fact.name == "job_start"}


def news_wake_at_once(world: World) -> Iterator[str]:
    """S27: a session whose job has news is due in the transaction that brings them, unless it is over."""
    for each in world.record.delivered:
        due = each.status == "runnable" and each.due_us is not None and each.due_us <= each.now_us
        if not due and not each.held and each.status not in OVER:
            yield f"news came at {each.seq} and the session is {each.status}, due {each.due_us}"


def deadlines_are_told_once(world: World) -> Iterator[str]:
    """A job's line and its deadline are told once each, and while it has no end."""
    for session in world.sessions.values():
        told: Counter[tuple[str, bool]] = Counter()
        over: set[str] = set()
        for event in world.events[session.session_id]:
            match event.fact:
                case JobLine(job_id=job_id, deadline=deadline):
                    told[job_id, deadline] += 1
                    if deadline and job_id in over:
                        yield f"the deadline of {job_id} is told at {event.seq}, after its end"
                case JobEnded(job_id=job_id):
                    over.add(job_id)
        yield from (
            f"{job_id}: a line or deadline is told {count} times" for (job_id, _), count in told.items() if count > 1
        )


WORLD = (
    jobs_run_once,
    jobs_are_told_once,
    job_ends_are_true,
    no_brain_waits_for_a_job,
    news_wake_at_once,
    deadlines_are_told_once,
)
