"""Decisions about tool calls and jobs (S6, S7, S12, S21)."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.facts.people import ApprovalSuperseded
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import JobLine, ToolOutcomeUnknown, ToolResult
from holdfast.session.actions import (
    Action,
    AskPerson,
    Dispatch,
    End,
    EndCalls,
    Provision,
    Reconcile,
    Record,
    RunHarness,
)
from holdfast.session.context.notes import job_name
from holdfast.session.context.window import arrived
from holdfast.session.decide import waits
from holdfast.session.decide.waits import due, is_over
from holdfast.session.state import Ask, Call, State
from holdfast.session.state.parts import Job
from holdfast.session.tools import jobs as job_tools
from holdfast.session.tools.jobs import JOB_STOP, SERVICE_STOP
from holdfast.session.tools.policy import GRANT, Ruling, evaluate, grants

BLOCKING_ENDS = frozenset({"denied", "unknown", "skipped", "cancelled"})
"""After a call that ended like this, the later calls of its message are not run (S7)."""

ASKING = "ask_person"
"""The tool that asks a user. It never needs an approval itself."""


def next_call(state: State, opened: list[Call], now_us: int) -> Action:
    """Return the action for the first open call, or for all of them."""
    for dispatched in opened:
        if dispatched.attempt:
            return _reconcile(state, dispatched, now_us)
    lost = next((call for call in opened if call.lost), None)
    if lost is not None:
        return _leave_unknown(state, lost, "events of this session were lost, and nobody knows whether it ran")
    if state.cancelled or state.interrupted:
        return _end(state, [_not_run(each, "cancelled", "Not run: a person interrupted.") for each in opened])
    blocking = next((each for each in state.calls if each.end in BLOCKING_ENDS), None)
    if blocking is not None:
        why = f"Not run: an earlier call of the same message ended as {blocking.end}. Look before you go on."
        return _end(state, [_not_run(each, "skipped", why) for each in opened])
    call = opened[0]
    if call.problem:
        return EndCalls((_not_run(call, "error", call.problem),))
    ruling = rule_for(state, call, now_us)
    if ruling.decision == "deny":
        named = f" by the rule for {ruling.rule.tool!r}" if ruling.rule else ""
        return EndCalls((_not_run(call, "denied", f"Denied{named}: {call.name} is not allowed in this session."),))
    approval_id = ""
    if ruling.decision == "ask" and call.name != ASKING:
        approval = _approval(state, call, now_us)
        if not isinstance(approval, str):
            return approval
        approval_id = approval
    if call.where == "harness":
        return _harness(state, call, now_us)
    if call.where == "" and state.hands is None:
        return RunHarness(call.call_id) if is_about_nothing(state, call) else Provision()
    return Dispatch((call.call_id,) if approval_id else _runnable_together(state, opened, now_us), approval_id)


def rule_for(state: State, call: Call, now_us: int) -> Ruling:
    """Return the current ruling for a call."""
    rules = state.created.agent.rules if state.created else ()
    age_s = max(0.0, (now_us - state.created_us) / 1e6)
    return evaluate(rules, call.name, call.parts, whole=call.argument, age_s=age_s, uses=state.rule_uses)


def _end(state: State, results: list[ToolResult]) -> EndCalls:
    """End calls and supersede the items about them."""
    ended = {result.call_id for result in results}
    over = tuple(
        ApprovalSuperseded(item_id=ask.item_id, reason="the call it was about has ended")
        for ask in waits.unanswered(state)
        if ask.call_id in ended
    )
    return EndCalls(tuple(results), over)


def _not_run(call: Call, outcome: str, content: str) -> ToolResult:
    return ToolResult(call_id=call.call_id, outcome=outcome, content=content)  # type: ignore[arg-type]


def _runnable_together(state: State, opened: list[Call], now_us: int) -> tuple[str, ...]:
    together = all(call.read_only and call.where == opened[0].where and not call.price_pico for call in state.calls)
    if together and all(not call.problem and rule_for(state, call, now_us).decision == "allow" for call in opened):
        return tuple(call.call_id for call in opened)
    return (opened[0].call_id,)


def _approval(state: State, call: Call, now_us: int) -> str | Action:
    """Return the approval or grant that allows this call; otherwise an action: ask, wait, or end it (S21)."""
    ask = waits.ask_for(state, call.call_id, "tool")
    if ask is None:
        held = _granted(state, call, now_us)
        return held if held else AskPerson(call.call_id)
    if ask.verdict == "approve":
        return ask.item_id
    if ask.verdict == "deny":
        return EndCalls((_not_run(call, "denied", _refusal(ask)),))
    if state.message_seq > ask.seq:
        return _wrote_instead(state, call)
    return waits.wait(state, now_us, f"{call.name} waits for an approval")


def _refusal(ask: Ask) -> str:
    if ask.expired:
        return "Not run: a person was asked whether to allow this call, and nobody answered in time."
    return "A person did not allow this call." + (f" They say: {ask.note}" if ask.note else "")


def _granted(state: State, call: Call, now_us: int) -> str:
    """Return the grant that covers this call. Calls that the harness answers are approved one by one."""
    if call.where == "harness":
        return ""
    for held in state.grants:
        age_s = max(0.0, (now_us - held.at_us) / 1e6)
        if held.outdated:
            continue
        if grants(held.grant, call.name, call.parts, whole=call.argument, age_s=age_s, uses=held.used):
            return f"{GRANT}{held.seq}"
    return ""


def _wrote_instead(state: State, call: Call) -> EndCalls:
    return _end(state, [_not_run(call, "cancelled", "Not run: a person wrote to you instead of answering.")])


def _harness(state: State, call: Call, now_us: int) -> Action:
    """Return the action for a call that the harness answers: at once, or when its wait is over."""
    match call.name:
        case "sleep":
            return waits.sleep(state, call, now_us)
        case "wait_for_children":
            return waits.wait_for_children(state, call, now_us)
        case job_tools.JOB_WAIT:
            return wait_for_jobs(state, call, now_us)
        case "ask_person":
            return _question(state, call, now_us)
        case _:
            return RunHarness(call.call_id)


def _question(state: State, call: Call, now_us: int) -> Action:
    ask = waits.ask_for(state, call.call_id, "question")
    if ask is None:
        return AskPerson(call.call_id)
    if ask.verdict is None:
        if state.message_seq > ask.seq:
            return _wrote_instead(state, call)
        return waits.wait(state, now_us, "the agent has a question")
    if ask.expired:
        return EndCalls((_not_run(call, "denied", "Nobody answered in time. Go on without, or say why not."),))
    if ask.verdict == "approve":
        return EndCalls((_not_run(call, "ok", ask.note or "Yes."),))
    return EndCalls((_not_run(call, "denied", f"The answer is no. {ask.note}".strip()),))


def _reconcile(state: State, call: Call, now_us: int) -> Action:
    """Reconcile a dispatched call without an end; where required, a user decides (S12)."""
    ask = waits.ask_for(state, call.call_id, "unknown")
    if ask is None:
        return Reconcile(call.call_id)
    if state.cancelled or state.interrupted or (ask.verdict is None and state.message_seq > ask.seq):
        return _leave_unknown(state, call, "a person wrote instead of saying whether it happened")
    if ask.verdict is None:
        return waits.expire_or_notify(state, now_us) or waits.wait(
            state, now_us, f"nobody knows whether {call.name} happened"
        )
    return Reconcile(call.call_id, ask.verdict)


def _leave_unknown(state: State, call: Call, reason: str) -> Record:
    content = f"The outcome of this call is unknown: {reason}. Look at the actual state before you go on."
    fact = ToolOutcomeUnknown(
        call_id=call.call_id,
        reason=reason,
        content=content,
        dispatch_seq=call.dispatch_seq if call.reserved_pico is not None else 0,
        cost_pico=call.reserved_pico,
    )
    over = (
        ApprovalSuperseded(item_id=ask.item_id, reason=reason)
        for ask in waits.unanswered(state)
        if ask.call_id == call.call_id
    )
    return Record((*over, fact))


LATE_US = 120_000_000
"""Time after its latest end at which a job without an end is checked: the process that should report it may be gone."""

WAITS = frozenset({"job", "timer", "person", "child", "provider"})
"""Reasons to park under which a job's deadline counts; under the others a wake would achieve nothing."""


def is_about_nothing(state: State, call: Call) -> bool:
    """Return True if a call would stop something that does not run: the answer needs no sandbox."""
    return call.name in (JOB_STOP, SERVICE_STOP) and not state.hands_at_work()


def late_jobs(state: State, now_us: int) -> Record | None:
    """Record the job deadlines that have passed."""
    late = [
        job
        for job in state.live_jobs()
        if job.deadline_us is not None and is_over(state, job.seq, job.deadline_us, now_us)
    ]
    if not late:
        return None
    told = "[Job {} still runs, and its deadline has passed.]"
    return Record(tuple(JobLine(job_id=job.job_id, content=told.format(job_name(job)), deadline=True) for job in late))


def wait_for_jobs(state: State, call: Call, now_us: int) -> Action:
    """Continue a call that waits for jobs: report, or park."""
    over = call.until_us is not None and is_over(state, call.seq, call.until_us, now_us, call.at_us)
    came_in = arrived(state, call)
    if over or came_in or not call.waits_for or any(_has_news(state, job_id) for job_id in call.waits_for):
        return RunHarness(call.call_id)
    jobs = [state.jobs[job_id] for job_id in call.waits_for]
    due_us = None if call.until_us is None else due(state, call.seq, call.until_us, call.at_us)
    return End(ShiftEnded(status="parked", reason="job", detail=waiting_for(jobs), due_us=due_us))


def _has_news(state: State, job_id: str) -> bool:
    """Return True if a job has news that no request has shown yet; always for one that has ended."""
    job = state.jobs.get(job_id)
    if job is None or job.outcome is not None:
        return True
    told = {item.seq for item in state.pending}
    return bool(told & {job.line_seq, job.late_seq})


def waiting_for(jobs: list[Job]) -> str:
    """Describe the jobs that a session waits for."""
    first = jobs[0]
    since = datetime.fromtimestamp(first.started_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    return f"waits for job {job_name(first)}, at work since {since}{others}"


def with_job_deadlines(state: State, action: Action, now_us: int) -> Action:
    """Add the deadlines of jobs to the due time of a parking session, and a check on jobs that were not reported."""
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
