"""Each event as a short line for users: one table of event type → line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.clock import local_time
from holdfast.facts import duty, hands, mission, model, people, session, shift, task, tool
from holdfast.facts.base import Fact, text_of
from holdfast.facts.codec import Event
from holdfast.service.access_lines import HOSTS_SHOWN, host_files_line, policy_line, weakness
from holdfast.service.items import lines as item_lines
from holdfast.session.context.text import harmless
from holdfast.session.decide.waits import proof_text
from holdfast.session.limits import limit_line
from holdfast.session.money import usd
from holdfast.session.tools import TOOLS

MAIN_ARGUMENT = {name: tool.main or "reason" for name, tool in TOOLS.items()}
DIGITS = 10
"""Digits shown of a commit or a digest."""

_WIDTH = 100


def one_line(text: str, width: int = _WIDTH) -> str:
    """`text` on one line, cut to `width`, with control characters escaped."""
    clean = harmless(" ".join(text.split()))
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe(event: Event) -> str:
    """An event as a short line; empty for an event that progress output does not show."""
    line = LINES.get(type(event.fact))
    return line(event.fact, event) if line else ""


def in_detail(event: Event) -> str:
    """An event as a short line, including details that progress output does not show."""
    line = DETAILS.get(type(event.fact))
    return (line and line(event.fact, event)) or describe(event)


def in_full(event: Event) -> str:
    """The whole text of a message or a result, or the arguments of a call; empty for other events."""
    match event.fact:
        case model.AgentToolUse(input=given, malformed=malformed):
            return malformed or "\n".join(f"{name}: {value}" for name, value in given.items())
        case model.AgentThinking(text=text):
            return text
        case fact:
            content = getattr(fact, "content", "")
            return content if isinstance(content, str) else text_of(content)


def _tail(text: str) -> str:
    """`: text` on one line; empty for an empty text."""
    return f": {one_line(text)}" if text else ""


def _call(use: model.AgentToolUse) -> str:
    """A call with its main argument, or the first one that is text."""
    texts = [value for value in use.input.values() if isinstance(value, str)]
    main = use.input.get(MAIN_ARGUMENT.get(use.name, "pattern"), texts[0] if texts else "")
    first, _, rest = str(main).partition("\n")
    if first.startswith("# ") and rest.startswith("p=$(mktemp "):
        main = first[2:]  # the command of a loop, which its script has in the first line
    return f"{use.name}: {one_line(use.malformed or str(main))}".removesuffix(": ")


NOTES = ("[exit status ", "[no output]")
"""Beginnings of notes of the harness below an output that the line of the outcome says already."""


def result_line(result: tool.ToolResult, *, why: bool = True) -> str:
    """The outcome of a call, and if it failed the last line of its output unless `why` is false."""
    seconds = f" in {result.duration_ms / 1000:.1f} s" if result.duration_ms is not None else ""
    taken = ", taken from the hands' journal" if result.reconciled else ""
    status = f", exit status {result.exit_code}" if result.exit_code else ""
    cause = ""
    if why and result.outcome in ("error", "denied"):  # the last line, without the bracketed note that Holdfast appends
        lines = [line for line in result.content.splitlines() if line.strip() and not line.startswith(NOTES)]
        spoken = [line for line in lines if not line.startswith("[")]
        cause = f": {one_line((spoken or lines)[-1])}" if lines else ""
    strange = ", from outside" if result.untrusted else ""
    return f"  → {result.outcome}{status}{seconds}{strange}{taken}{cause}"


def _update(update: session.SessionUpdated) -> str:
    new = {
        "budget": usd(update.budget_pico) if update.budget_pico is not None else "",
        "turns": str(update.max_turns or ""),
        "context tokens": str(update.context_tokens or ""),
    }
    if update.owner is not None:
        return f"handed over to {update.owner}"
    if update.egress is not None:
        return f"may talk to: {one_line(policy_line(update.egress))}"
    caps = ", ".join(f"{name} {value}" for name, value in new.items() if value)
    return f"new caps: {caps}" if caps else "the failed request is made again"


def _notice(notice: people.NoticeSent) -> str:
    if notice.held:
        return ""
    if notice.ok:
        return f"{notice.target} was notified of {notice.item_id}"
    return f"{notice.target} could not be notified: {one_line(notice.detail)}"


def _requests(record: hands.EgressRecorded) -> str:
    """Requests by verdict, blocked ones first."""
    parts = []
    for verdict in ("held", "refused", "allowed"):
        mine = [seen for seen in record.seen if seen.verdict == verdict]
        hosts = list(dict.fromkeys(f"{each.host}{'' if each.port == 443 else f':{each.port}'}" for each in mine))
        more = f" and {len(hosts) - HOSTS_SHOWN} more" if len(hosts) > HOSTS_SHOWN else ""
        if mine:
            count = sum(seen.count for seen in mine)
            parts.append(f"{count} {verdict} ({', '.join(hosts[:HOSTS_SHOWN])}{more})")
    if record.dropped:
        parts.append(f"{record.dropped} more")
    return f"{'set-up, outside' if record.set_up else 'outside'}: {', '.join(parts) or 'nothing'}"


def environment_line(record: hands.EnvironmentRecorded) -> str:
    """The prepared environment, or the reason why there is none."""
    if record.error:
        return f"no environment: {' '.join(record.error.split())}"
    if not record.digest:
        return "no environment is wanted"
    how = "found as it was made before" if record.cached else f"made in {record.duration_ms / 1000:.1f} s"
    what = f", {len(record.packages)} packages" if record.packages else ""
    return f"environment {record.digest[:12]} {how}{what}"


Line = Callable[[Any, Event], str]

_KERNEL: dict[type[Fact], Line] = {
    model.AgentToolUse: lambda fact, _: _call(fact),
    tool.ToolResult: lambda fact, _: result_line(fact),
    tool.ToolOutcomeUnknown: lambda fact, _: f"  → outcome unknown: {fact.reason}; the model is told",
    model.AgentMessage: lambda fact, _: one_line(text_of(fact.content)),
    model.ModelRequestEnd: lambda fact, _: {
        "error": f"model request failed ({fact.error_kind}): {one_line(fact.message)}",
        "presumed": "a model request died with its process; its reservation counts as spent",
    }.get(fact.outcome, ""),
    hands.HandsLost: lambda fact, _: f"hands lost: {fact.reason}",
    shift.ShiftStarted: lambda fact, event: f"shift {event.epoch} begins in process {fact.pid}",
    shift.ClockSet: lambda fact, _: (
        f"the clock was set; this machine now says that it was started at {local_time(fact.booted_us)}"
    ),
    shift.LeaseStolen: lambda fact, _: f"the lease was taken from {fact.from_worker_id}",
    shift.ShiftEnded: lambda fact, _: (
        f"shift ends: {fact.status}{f' ({fact.reason})' if fact.reason else ''}{_tail(fact.detail)}"
    ),
    people.UserMessage: lambda fact, event: f"message from {event.actor}: {one_line(text_of(fact.content))}",
    people.UserInterrupt: lambda _, event: f"interrupted by {event.actor}",
    people.UserCancel: lambda _, event: f"cancelled by {event.actor}",
    people.UserPause: lambda fact, event: (
        f"{'stopped with everything' if fact.stop_seq else 'paused'} by {event.actor}"
    ),
    people.UserResume: lambda _, event: f"resumed by {event.actor}",
    session.SessionUpdated: lambda fact, _: _update(fact),
    session.SessionEventsLost: lambda fact, _: (
        "acknowledged events were lost"
        + (f", event {fact.known_seq} among them" if fact.known_seq else "")
        + (f"; calls that ran: {', '.join(fact.calls)}" if fact.calls else "")
    ),
    session.SessionError: lambda fact, _: f"error: {one_line(fact.message)}",
    people.ApprovalRequested: lambda fact, _: (
        f"approval requested ({fact.item_id}): {one_line(fact.title)}"
        + ("" if fact.action == fact.title else f" {one_line(fact.action)}")
    ),
    people.ApprovalDecided: lambda fact, event: (
        f"{fact.item_id} {'approved' if fact.verdict == 'approve' else 'denied'} by {event.actor} "
        f"({proof_text(fact.proof)}){_tail(fact.note)}"
    ),
    people.ApprovalExpired: lambda fact, _: (
        f"{fact.item_id} expired without an answer; the default applies: {fact.verdict}"
    ),
    people.ApprovalSuperseded: lambda fact, _: f"{fact.item_id} is superseded: {one_line(fact.reason)}",
    people.NoticeSent: lambda fact, _: _notice(fact),
    model.ContextCompacted: lambda fact, _: f"the turns through event {fact.through_seq} are summarized",
    model.ContextReset: lambda fact, _: f"a fresh context ({fact.cause.replace('_', ' ')}){_tail(fact.detail)}",
    model.ContextFailed: lambda fact, _: f"a {fact.purpose} failed: {one_line(fact.reason)}",
    model.ContextSign: lambda fact, _: f"a sign of {fact.kind.replace('_', ' ')}: {one_line(fact.detail)}",
    model.PhaseEnded: lambda fact, _: (
        f"phase {one_line(fact.name)} is over{f'; next: {one_line(fact.next)}' if fact.next else ''}"
    ),
    model.RuleBreached: lambda fact, _: f"rule violated: {one_line(fact.rule)} ({one_line(fact.detail)})",
    shift.BudgetSet: lambda fact, _: (
        f"cap of {fact.account_id} ({fact.period}): {'none' if fact.cap_pico is None else usd(fact.cap_pico)}"
    ),
    shift.LimitSet: lambda fact, _: limit_line(fact),
    shift.BreakerOpened: lambda fact, _: f"breaker {fact.breaker} opens: {one_line(fact.detail)}",
    shift.BreakerClosed: lambda fact, _: f"breaker {fact.breaker} closes",
    shift.EmergencyStopped: lambda fact, event: f"everything is stopped by {event.actor}{_tail(fact.reason)}",
    shift.EmergencyReleased: lambda _, event: f"the emergency stop is lifted by {event.actor}",
    shift.SessionsRemoved: lambda fact, event: f"{counted(len(fact.sessions), 'session')} removed by {event.actor}",
    tool.JobStarted: lambda fact, _: f"job {fact.name} ({fact.job_id}) runs without a brain",
    tool.JobLine: lambda fact, _: (
        f"the deadline of {fact.job_id} passed, it still runs" if fact.deadline else f"{fact.job_id} printed its line"
    ),
    tool.JobEnded: lambda fact, _: (
        f"job {fact.job_id} ended: {fact.outcome}{f', exit status {fact.exit_code}' if fact.exit_code else ''}"
    ),
    tool.ServiceStarted: lambda fact, _: f"service {fact.name} runs",
    tool.ServiceEnded: lambda fact, _: f"service {fact.name} is gone: {fact.reason}",
}

_SKIPPED = {"overlap": "a firing is under way", "queue": "the queue is full"}

_LONG: dict[type[Fact], Line] = {
    hands.HandsProvisioned: lambda fact, _: (
        f"hands ready ({fact.provider}){': ' + weakness(fact) if weakness(fact) else ''}"
    ),
    hands.HandsRestored: lambda fact, _: (
        f"{'new hands have' if fact.hands_id else 'a user restored'} the files as after event {fact.through_seq}"
        + (f"; {counted(len(fact.unkept), 'call')} after that are gone" if fact.unkept else "")
    ),
    hands.HandsHostFiles: lambda fact, _: host_files_line(fact),
    hands.EgressRecorded: lambda fact, _: _requests(fact),
    hands.EgressFailed: lambda fact, _: f"no way outside: {fact.reason}",
    hands.SessionTainted: lambda fact, _: f"tainted: {fact.reason}",
    hands.EnvironmentRecorded: lambda fact, _: environment_line(fact),
    mission.ContractSealed: lambda fact, _: (
        f"contract sealed: {counted(fact.items, 'item')}, 0 of {fact.criteria} criteria met"
    ),
    mission.ContractAmended: lambda fact, _: (
        f"contract amended by {fact.author}" + (f"; weaker now: {', '.join(fact.weakened)}" if fact.weakened else "")
    ),
    mission.PlannerOpened: lambda fact, _: (
        f"a planner takes {fact.task_id} apart" if fact.task_id else "a planner is at work"
    ),
    mission.PlanRefused: lambda fact, _: f"plan sent back: {fact.problems[0] if fact.problems else ''}",
    mission.MissionPlanned: lambda fact, _: f"planned: {counted(len(fact.tasks), 'task')}",
    mission.MissionReplanned: lambda fact, _: f"plan {fact.round + 1}: {counted(len(fact.tasks), 'task')}",
    mission.MissionEscalated: lambda fact, _: f"a person is asked: {fact.why}",
    mission.MissionFinished: lambda fact, _: (
        f"mission {fact.status}: {len(fact.met)} criteria met, {len(fact.unmet)} not"
    ),
    mission.WorkSubmitted: lambda fact, _: f"{fact.kind} handed in",
    tool.HookRan: lambda fact, _: (
        f"check {'failed' if fact.blocked else 'passed'}: {fact.command}"
        if fact.event == tool.UNTIL
        else "sent back: nothing was submitted"
        if fact.event == tool.NOT_HANDED_IN
        else f"hook {fact.event} sent it back: {fact.command}"
        if fact.blocked
        else ""
    ),
    mission.LessonProposed: lambda fact, _: f"a line for AGENTS.md is proposed: {fact.line}",
    mission.LessonApplied: lambda fact, _: f"AGENTS.md has a new line: {fact.line}",
    task.TaskStarted: lambda fact, _: f"{fact.task_id}: worker {fact.attempt} begins",
    task.TaskHandedIn: lambda fact, _: (
        f"{fact.task_id}: {'its worker stopped' if fact.status == 'stopped' else f'handed in ({fact.status})'}"
    ),
    task.FindingNoted: lambda fact, _: f"{fact.task_id} found out: {fact.text}",
    task.RatchetViolated: lambda fact, _: (
        f"{fact.task_id}: RATCHET {', '.join(f'{each.rule} {each.path}' for each in fact.violations[:3])}"
    ),
    task.TaskRefused: lambda fact, _: (
        f"{fact.task_id}: sent back ({fact.kind}): {fact.issues[0] if fact.issues else ''}"
    ),
    task.JudgeOpened: lambda fact, _: f"{fact.task_id or 'the whole'}: a judge looks",
    task.TaskJudged: lambda fact, _: (
        f"{fact.task_id or 'the whole'}: "
        + (f"verdict refused: {fact.refused}" if fact.refused else f"judged: {fact.decision}")
    ),
    task.TaskEnded: lambda fact, _: f"{fact.task_id}: {fact.status}: {fact.why}",
    mission.VerificationStarted: lambda fact, _: (
        "" if fact.run or not fact.criteria else f"checking: {', '.join(fact.criteria)}"
    ),
    mission.CriterionChecked: lambda fact, _: (
        f"{fact.criteria[0] if len(fact.criteria) == 1 else f'{len(fact.criteria)} criteria'}: {fact.outcome}"
    ),
    mission.VerificationEnded: lambda fact, _: f"the checks could not be run: {fact.error}" if fact.error else "",
    task.CheckProved: lambda fact, _: "" if fact.shown or fact.lost else f"{fact.criterion}: not proven able to fail",
    mission.FlakeNoted: lambda fact, _: (
        f"flaky: {fact.criterion} failed {fact.failures} of {fact.runs} runs on one tree"
    ),
    task.RepoCommitted: lambda fact, _: (
        f"committed without {', '.join(fact.left_out[:3])}, which other systems take for .git" if fact.left_out else ""
    ),
    task.MergeStarted: lambda fact, _: f"merging {', '.join(fact.tasks) or 'the base'}",
    task.RepoMerged: lambda fact, _: (
        f"merged {', '.join(fact.tasks) or 'the base'}" + (f"; {len(fact.passed)} met" if fact.passed else "")
    ),
    task.RepoConflicted: lambda fact, _: f"{fact.task_id}: conflict in {', '.join(fact.paths[:3])}; it starts again",
    task.RepoMoved: lambda fact, _: f"another process moved {fact.ref} to {fact.found[:DIGITS]}",
    task.BatchRefused: lambda fact, _: (
        f"the merge of {', '.join(fact.tasks) or 'the base'} is red: {', '.join(fact.failed[:3])}"
    ),
    duty.DutyChanged: lambda fact, event: f"the definition was changed by {event.actor}",
    duty.TriggerOffered: lambda fact, _: (
        f"due: the instant {local_time(fact.time_us)}"
        if fact.trigger == duty.SCHEDULE
        else f"{fact.trigger} brings {fact.key}"
    ),
    duty.TriggerFired: lambda fact, _: f"firing {fact.firing} begins ({fact.trigger}): {fact.child_id}",
    duty.TriggerSkipped: lambda fact, _: f"the instant {local_time(fact.time_us)} is skipped: {_SKIPPED[fact.reason]}",
    duty.TriggerMissed: lambda fact, _: (
        f"{counted(fact.count, 'instant')} missed from {local_time(fact.first_us)} on (misfire {fact.policy})"
    ),
    duty.TriggerDead: lambda fact, _: f"{counted(len(fact.keys), 'event')} became dead letters: {fact.reason}",
    duty.TriggerReplayed: lambda fact, event: f"{counted(len(fact.keys), 'dead event')} put back by {event.actor}",
    duty.ScheduleRewound: lambda fact, _: f"the clock was set back: the schedule goes on from {local_time(fact.to_us)}",
    duty.SourcePolled: lambda fact, _: (
        f"{fact.trigger} could not be read: {fact.failure}"
        if fact.failure
        else f"{fact.trigger}{_tail('; '.join(fact.notes))}"
        if fact.notes
        else ""
    ),
    duty.FiringEnded: lambda fact, _: (
        f"firing {fact.firing} ended: {fact.outcome}{_tail(fact.detail)}{_tail(fact.summary)}"
    ),
    duty.ValueReported: lambda fact, _: f"{fact.name} = {fact.value:g} {fact.unit}".rstrip() + _tail(fact.note),
    duty.AlertRaised: lambda fact, _: f"ALERT {fact.alert} ({fact.severity}){_tail(fact.detail)}",
    duty.AlertCleared: lambda fact, _: f"alert {fact.alert} cleared{_tail(fact.detail)}",
    duty.AlertAcknowledged: lambda fact, event: f"alert {fact.alert} acknowledged by {event.actor}{_tail(fact.note)}",
}


def _cut(line: Line) -> Line:
    return lambda fact, event: one_line(line(fact, event), 160)


LINES: dict[type[Fact], Line] = {
    **_KERNEL,
    **{kind: _cut(line) for kind, line in (*_LONG.items(), *item_lines.LINES.items())},
}
"""Event type → line in progress output; an empty line is not shown."""

DETAILS: dict[type[Fact], Line] = {
    session.SessionCreated: lambda fact, _: one_line(fact.goal),
    model.ModelRequestStart: lambda fact, _: (
        f"attempt {fact.attempt}, about {fact.input_tokens_estimate} tokens"
        + (f", {usd(fact.reserved_pico)} held" if fact.reserved_pico is not None else "")
    ),
    model.ModelRequestEnd: lambda fact, _: (
        fact.outcome
        + (f", {fact.usage.input_tokens} tokens in, {fact.usage.output_tokens} out" if fact.usage else "")
        + f", {usd(fact.cost_pico)}"
        if fact.outcome in ("ok", "cancelled")
        else ""
    ),
    model.AgentThinking: lambda fact, _: one_line(fact.text),
    tool.ToolDispatched: lambda fact, _: (
        f"call {fact.call_id}" + (f", attempt {fact.attempt}" if fact.attempt > 1 else "")
    ),
    tool.ToolResult: lambda fact, _: f"{result_line(fact)}: {one_line(fact.content)}" if fact.outcome == "ok" else "",
    hands.HandsReleased: lambda _, __: "hands given back",
    session.SessionForked: lambda fact, _: f"a fork of {fact.origin} at {fact.origin_seq}",
    hands.WorkspaceSnapshotted: lambda fact, _: (
        f"files could not be kept: {one_line(fact.error)}"
        if fact.error
        else f"files as after event {fact.through_seq} kept: {counted(fact.files, 'file')}"
    ),
    people.ApprovalSeen: lambda fact, _: f"{fact.item_id} seen by {fact.by}",
    mission.MissionOpened: lambda fact, _: f"the branch {fact.ref} begins at {fact.base[:DIGITS]}",
    task.RepoCommitted: lambda fact, _: (
        f"committed {fact.commit[:DIGITS]} to {fact.ref}"
        + (" (not handed in)" if fact.wip else "")
        + (f", without {', '.join(fact.left_out[:3])}, which other systems take for .git" if fact.left_out else "")
    ),
    task.RepoMerged: lambda fact, _: (
        f"branch at {fact.commit[:DIGITS]}: {', '.join(fact.tasks) or 'base'} in, {len(fact.passed)} criteria pass"
    ),
}
"""Event type → line in `logs`. Without one, or if it is empty, the line of `LINES` is used."""

NO_LINE: frozenset[type[Fact]] = frozenset(
    {
        shift.BudgetReached,
        shift.ChildOpened,
        shift.ChildMessaged,
        shift.ChildCancelled,
        shift.ChildFinished,
        model.RuleChecked,
        shift.BriefRead,
        mission.ReplanAsked,
        task.CheckProbed,
        task.TaskInspected,
        task.TaskQueued,
    }
)
"""Events without a line: another event of the session or of its child tells the user the same."""
