"""Invariants of child sessions (S4) and of background jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import UserCancel, UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened, ShiftEnded
from holdfast.facts.tool import JobEnded, JobLine, JobStarted, ToolDispatched, ToolResult
from holdfast.session.context.conversation import TextPart, ToolResultPart
from holdfast.sim.invariants.history import History
from holdfast.sim.invariants.rest import working_children
from holdfast.sim.record import Commit
from holdfast.sim.world import Session, World

FOR_GOOD = ("done", "failed", "cancelled")

STUCK = ("cap", "budget", "context")
"""Park reasons from which only the parent or a user can wake a child."""


def _transactions(world: World) -> dict[int, list[Commit]]:
    out: dict[int, list[Commit]] = {}
    for commit in world.record.commits:
        out.setdefault(commit.transaction, []).append(commit)
    return out


def children_are_opened_once(world: World) -> Iterator[str]:
    """S4: a call opens at most one child, whose log begins in the transaction that records it."""
    opened: dict[tuple[str, str], str] = {}
    for parts in _transactions(world).values():
        begun = [each for part in parts for each in part.events if isinstance(each.fact, SessionCreated)]
        begun = [event for event in begun if isinstance(event.fact, SessionCreated) and event.fact.parent]
        told = [(event, event.fact) for part in parts for event in part.events if isinstance(event.fact, ChildOpened)]
        if sorted(event.session_id for event in begun) != sorted(fact.child_id for _, fact in told):
            yield f"a transaction begins {len(begun)} children and names {len(told)}"
        for event, fact in told:
            if opened.setdefault((event.session_id, fact.call_id), fact.child_id) != fact.child_id:
                yield f"call {fact.call_id} opened two children, the second at {event.seq}"
            yield from _born(world, event, fact, parts)


def _born(world: World, event: Event, fact: ChildOpened, parts: list[Commit]) -> Iterator[str]:
    child = world.sessions.get(fact.child_id)
    up = child.created.parent if child is not None else None
    if up is None or (up.session_id, up.call_id) != (event.session_id, fact.call_id):
        yield f"the child opened at {event.seq} does not name the call that opened it"
    mine = [each.fact for part in parts for each in part.events if each.session_id == event.session_id]
    if not any(isinstance(each, ToolResult) and each.call_id == fact.call_id for each in mine):
        yield f"the call that opened a child at {event.seq} has no result in the same transaction"


def children_report_once(world: World) -> Iterator[str]:
    """S4: the end of a child reaches its parent in the same transaction, once for each end."""
    for parts in _transactions(world).values():
        ends = [each for part in parts for each in part.events if _may_be_told(world, each)]
        told = [each.fact for part in parts for each in part.events if isinstance(each.fact, ChildFinished)]
        said: Counter[tuple[str, str]] = Counter((fact.child_id, fact.status) for fact in told)
        may: Counter[tuple[str, str]] = Counter((event.session_id, getattr(event.fact, "status", "")) for event in ends)
        must: Counter[tuple[str, str]] = Counter(
            (each.session_id, getattr(each.fact, "status", "")) for each in ends if _is_told(each)
        )
        if must - said or said - may:
            yield f"in one transaction {sorted(may)} ended, and parents are told {[fact.child_id for fact in told]}"
    for session in world.sessions.values():
        up = session.created.parent
        row = world.beside.rows[session.session_id]
        if up is None or row.status not in FOR_GOOD:
            continue
        heard = [event.fact for event in world.events[up.session_id] if isinstance(event.fact, ChildFinished)]
        last = [fact for fact in heard if fact.child_id == session.session_id]
        if not last or last[-1].status != row.status:
            yield f"child {session.script.name} is {row.status}, and its parent does not know"


def _may_be_told(world: World, event: Event) -> bool:
    """True for a child's end that may be reported to its parent."""
    session = world.sessions.get(event.session_id)
    if session is None or session.created.parent is None or not isinstance(event.fact, ShiftEnded):
        return False
    return event.fact.status in FOR_GOOD or (event.fact.status == "parked" and event.fact.reason in STUCK)


def _is_told(event: Event) -> bool:
    """True for an end that must be reported. A child with a due time may continue by itself."""
    return isinstance(event.fact, ShiftEnded) and (event.fact.status in FOR_GOOD or event.fact.due_us is None)


def children_end_with_their_parent(history: History) -> Iterator[str]:
    """S4: children of a cancelled session end; a message to a child reaches it in the same transaction."""
    world = history.world
    cancelled: set[str] = set()
    for event in history.events:
        match event.fact:
            case ChildCancelled(child_id=child_id):
                cancelled.add(child_id)
                told = [one.fact for each in _told(history, event.seq, child_id) for one in each.events]
                if not any(isinstance(fact, UserCancel) for fact in told):
                    yield f"the child cancelled at {event.seq} was not told"
            case ChildMessaged(child_id=child_id):
                if not any(_speaks(each) for each in _told(history, event.seq, child_id)):
                    yield f"what was said to a child at {event.seq} did not reach it"
            case ShiftEnded(status="cancelled"):
                for child_id in set(working_children(history, event.seq)) - cancelled:
                    yield f"the session is cancelled at {event.seq}, and its child {child_id} works on"
    if world.beside.rows[history.session.session_id].status == "cancelled":
        for _, child_id in history.session.children:
            if world.beside.rows[child_id].status not in FOR_GOOD and not _taken_up(history, child_id):
                yield f"the session is cancelled, and its child {child_id} is not over"


def _taken_up(history: History, child_id: str) -> bool:
    """True if a user sent a message to a finished child, which then no longer works for its parent."""
    ends = [
        commit.tick
        for commit in history.commits
        for event in commit.events
        if isinstance(event.fact, ChildFinished) and event.fact.child_id == child_id
    ]
    mine = {commit.transaction for commit in history.commits}
    commits = [each for each in history.world.record.commits if each.session_id == child_id]
    others = [each for each in commits if each.transaction not in mine and _speaks(each)]
    return bool(ends) and any(each.tick > ends[-1] for each in others)


def _told(history: History, seq: int, child_id: str) -> list[Commit]:
    """Return commits to a child in the event's transaction or before it."""
    mine = next(each for each in history.commits if any(event.seq == seq for event in each.events))
    commits = [each for each in history.world.record.commits if each.session_id == child_id]
    return [each for each in commits if each.transaction == mine.transaction or (each.tick < mine.tick)]


def _speaks(commit: Commit) -> bool:
    return any(isinstance(event.fact, UserMessage) for event in commit.events)


ALL = (children_end_with_their_parent,)

WORLD = (children_are_opened_once, children_report_once)


QUIET_S = 900.0
"""Seconds without an append before a brain counts as waiting; requests, commands, and frozen processes take less."""

OVER = ("done", "failed", "cancelled")


def jobs_run_once(world: World) -> Iterator[str]:
    """S6, S12: a job's command runs at most once, and a job recorded as ok did run."""
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
    """S3: at rest, each job of a finished session has one end in the log, and the model sees it once."""
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
    """Check that the latest request after an end shows it once."""
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
    """S8, S10: the recorded end of a job is what its hands report, and unknown only if they cannot."""
    for said in world.record.ends:
        if said.outcome == "unknown" and said.state not in ("gone", "unknown"):
            yield f"{said.job_id} is told as unknown, and its hands say {said.state}"
        if said.outcome != "unknown" and said.state != "finished":
            yield f"{said.job_id} is told as {said.outcome}, and its hands say {said.state}"


def no_brain_waits_for_a_job(world: World) -> Iterator[str]:
    """A brain with nothing to do but wait for a job parks."""
    for session in world.sessions.values():
        quiet: dict[str, float] = {}
        at_work: set[str] = set()
        uses = [event.fact for event in world.events[session.session_id]]
        starts = {fact.call_id for fact in uses if isinstance(fact, AgentToolUse) and fact.name == "job_start"}
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
                    case ToolDispatched(call_id=call_id) if call_id in starts:
                        at_work.add(call_id)
                    case JobEnded(job_id=job_id):
                        at_work.discard(job_id.removeprefix("job_"))


def news_wake_at_once(world: World) -> Iterator[str]:
    """S27: news of a job makes its session due in the same transaction, unless the session is finished."""
    for each in world.record.delivered:
        due = each.status == "runnable" and each.due_us is not None and each.due_us <= each.now_us
        if not due and not each.held and each.status not in OVER:
            yield f"news came at {each.seq} and the session is {each.status}, due {each.due_us}"


def deadlines_are_told_once(world: World) -> Iterator[str]:
    """A job's matched line and its deadline are reported once each, and only before its end."""
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


JOBS = (
    jobs_run_once,
    jobs_are_told_once,
    job_ends_are_true,
    no_brain_waits_for_a_job,
    news_wake_at_once,
    deadlines_are_told_once,
)
