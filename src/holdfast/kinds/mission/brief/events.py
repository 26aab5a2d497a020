"""Kinds of events that a brief lists, and the text for each event. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.facts.base import Fact
from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    HandsHostFiles,
    HandsLost,
    SessionTainted,
    WorkspaceSnapshotted,
)
from holdfast.facts.mission import (
    FlakeNoted,
    LessonApplied,
    LessonProposed,
    MissionEscalated,
    MissionReplanned,
    PlanRefused,
    VerificationEnded,
)
from holdfast.facts.model import AgentToolUse, ContextFailed, ContextReset, ModelRequestEnd, RuleBreached
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, NoticeSent, UserCancel, UserInterrupt, UserPause
from holdfast.facts.session import SessionError, SessionEventsLost
from holdfast.facts.shift import BreakerOpened, BudgetReached, LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.task import (
    BatchRefused,
    FindingNoted,
    RatchetViolated,
    RepoConflicted,
    RepoMoved,
    TaskHandedIn,
    TaskInspected,
    TaskJudged,
    TaskRefused,
)
from holdfast.facts.tool import NOT_HANDED_IN, HookRan, JobEnded, ToolOutcomeUnknown, ToolResult
from holdfast.kinds.mission.brief.document import Example, Line, Tree, counted, lined, listed, of, plain
from holdfast.kinds.mission.role.tools import SUBMIT_VERDICT

SHORT = 10
"""Number of characters shown of a commit's name."""


class Seen:
    """Context of an event from the earlier log: tool calls by id, and whether a shift is open."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.calls: dict[str, AgentToolUse] = {}
        self.in_shift = False

    def take(self, fact: Fact) -> None:
        """Add a fact."""
        if isinstance(fact, AgentToolUse):
            self.calls[fact.call_id] = fact
        elif isinstance(fact, ShiftStarted | ShiftEnded):
            self.in_shift = isinstance(fact, ShiftStarted)


Tell = Callable[[Any, Seen], str]


class Kind(NamedTuple):
    """Kind of event: its name, its title, and `tell`, which returns the text for an event, empty for another kind."""

    name: str
    words: str
    types: tuple[type[Fact], ...]
    tell: Tell


_NO_REASON = "no reason was given"


def _reason(fact: HandsLost | EgressFailed | SessionTainted, seen: Seen) -> str:
    return fact.reason or _NO_REASON


def _astray(fact: RepoMoved, seen: Seen) -> str:
    return "" if fact.followed else f"{fact.ref} was found at {fact.found[:SHORT] or 'nothing'}"


def _followed(fact: RepoMoved, seen: Seen) -> str:
    return f"{fact.ref} to {fact.found[:SHORT]}" if fact.followed else ""


def _unverified(fact: VerificationEnded, seen: Seen) -> str:
    return f"{fact.effect}: {fact.error}" if fact.error else ""


def _flake(fact: FlakeNoted, seen: Seen) -> str:
    return f"{fact.criterion} failed {fact.failures} of {fact.runs} runs on one tree"


def _presumed(fact: ModelRequestEnd, seen: Seen) -> str:
    return "charged as reserved" if fact.outcome == "presumed" else ""


def _reset(fact: ContextReset, seen: Seen) -> str:
    return f"{fact.cause}{f': {fact.detail}' if fact.detail else ''}"


def _unasked(fact: TaskInspected, seen: Seen) -> str:
    return f"{fact.task_id}: {listed(fact.unasked)}" if fact.unasked else ""


def _unknown(fact: ToolOutcomeUnknown | JobEnded, seen: Seen) -> str:
    if isinstance(fact, JobEnded):
        return f"job {fact.job_id}" if fact.outcome == "unknown" else ""
    call = seen.calls.get(fact.call_id)
    argument = next((str(value) for value in call.input.values()), "") if call is not None else ""
    return f"{call.name if call is not None else 'a call'} {plain(argument, 80)}: {fact.reason}"


def _ratchet(fact: RatchetViolated, seen: Seen) -> str:
    return f"{fact.task_id}: {listed([f'{each.rule} {each.path}' for each in fact.violations])}"


def _verdict_refused(fact: TaskJudged | ToolResult, seen: Seen) -> str:
    if isinstance(fact, TaskJudged):
        return f"{fact.task_id or 'the whole'}: {fact.refused}" if fact.refused else ""
    call = seen.calls.get(fact.call_id)
    judged = seen.role == "judge" and call is not None and call.name == SUBMIT_VERDICT
    return f"asked again: {fact.content}" if judged and fact.outcome == "error" else ""


def _judged(fact: TaskJudged, seen: Seen) -> str:
    if fact.refused or fact.decision == "pass":
        return ""
    issue = next((each.issue for each in fact.criteria if not each.passes and each.issue), fact.reason)
    return f"{fact.task_id or 'the whole'} ({fact.decision}): {issue}"


def _sent_back(fact: TaskRefused, seen: Seen) -> str:
    if fact.kind in ("judge", "ratchet"):
        return ""  # covered by its verdict or by the ratchet's findings
    return f"{fact.task_id} ({fact.kind}): {fact.issues[0] if fact.issues else _NO_REASON}"


def _batch(fact: BatchRefused, seen: Seen) -> str:
    what = f"{listed(fact.tasks)} broke {listed(fact.failed)}" if fact.tasks else ""
    return what + (f"; at fault: {listed(fact.culprits)}" if what and fact.culprits else "")


def _base_refused(fact: BatchRefused | RepoConflicted, seen: Seen) -> str:
    if isinstance(fact, BatchRefused):
        return "" if fact.tasks else f"with it {listed(fact.failed)} would fail"
    return "" if fact.task_id else f"{fact.commit[:SHORT]} conflicts in {listed(fact.paths)}"


def _conflict(fact: RepoConflicted, seen: Seen) -> str:
    return f"{fact.task_id} in {listed(fact.paths)}" if fact.task_id else ""


def _replanned(fact: MissionReplanned, seen: Seen) -> str:
    return f"plan {fact.round + 1}, {counted(len(fact.tasks), 'task')}: {fact.why or 'a task was taken apart'}"


def _died(fact: ShiftStarted, seen: Seen) -> str:
    return f"process {fact.pid} took over" if seen.in_shift else ""


def _retry(fact: ModelRequestEnd, seen: Seen) -> str:
    return f"{fact.error_kind or 'error'} {fact.message}" if fact.outcome == "error" else ""


def _hook(fact: HookRan, seen: Seen) -> str:
    blocked = fact.blocked and fact.event != NOT_HANDED_IN
    return f"{fact.event} {fact.command}: {fact.content}" if blocked else ""


def _concern(fact: TaskHandedIn, seen: Seen) -> str:
    said = (*fact.concerns, *(f"deviation: {each}" for each in fact.deviations))
    return f"{fact.task_id}: {'; '.join(said)}" if said else ""


def _answer(fact: ApprovalDecided | ApprovalExpired, seen: Seen) -> str:
    if isinstance(fact, ApprovalExpired):
        return f"{fact.item_id}: no answer in time, {fact.verdict} by default"
    return f"{fact.item_id}: {fact.verdict}{f', {fact.note}' if fact.note else ''}"


def _steered(fact: UserCancel | UserInterrupt | UserPause, seen: Seen) -> str:
    word = {UserCancel: "cancelled", UserInterrupt: "interrupted", UserPause: "paused"}[type(fact)]
    return f"{word}{f': {fact.reason}' if fact.reason else ''}"


def _outside(fact: EgressRecorded, seen: Seen) -> str:
    refused = [f"{each.count} to {each.host}:{each.port}" for each in fact.seen if each.verdict == "refused"]
    return listed(refused) if refused else ""


def _set_up(fact: EgressRecorded, seen: Seen) -> str:
    places = [f"{each.count} {each.verdict} to {each.host}:{each.port}" for each in fact.seen] if fact.set_up else []
    return listed(places) if places else ""


def _host_files(fact: HandsHostFiles, seen: Seen) -> str:
    return "" if fact.before else listed([f"{file.path} ({file.kind})" for file in fact.files])


def _notice(fact: NoticeSent, seen: Seen) -> str:
    return "" if fact.ok or fact.held or fact.again_us is not None else f"{fact.target}: {fact.detail}"


WRONG: tuple[Kind, ...] = (
    Kind("unknown", "calls with an unknown outcome", (ToolOutcomeUnknown, JobEnded), _unknown),
    Kind("ratchet", "ratchet violations refused", (RatchetViolated,), _ratchet),
    Kind("astray", "moves of the branch from outside", (RepoMoved,), _astray),
    Kind("escalated", "questions on how to go on", (MissionEscalated,), lambda fact, _: fact.why or _NO_REASON),
    Kind("unverified", "failed verifications", (VerificationEnded,), _unverified),
    Kind("verdict_refused", "verdicts refused", (TaskJudged, ToolResult), _verdict_refused),
    Kind("judge", "refusals by judges", (TaskJudged,), _judged),
    Kind("batch", "red merges refused", (BatchRefused,), _batch),
    Kind("base_refused", "new commits of the base not merged", (BatchRefused, RepoConflicted), _base_refused),
    Kind("conflict", "merge conflicts", (RepoConflicted,), _conflict),
    Kind("sent_back", "submissions sent back", (TaskRefused,), _sent_back),
    Kind("flake", "flaky checks", (FlakeNoted,), _flake),
    Kind("plan_refused", "plans refused", (PlanRefused,), lambda fact, _: next(iter(fact.problems), _NO_REASON)),
    Kind("replanned", "new plans", (MissionReplanned,), _replanned),
    Kind("rule", "breaches of pinned rules", (RuleBreached,), lambda fact, _: f"{fact.rule}: {fact.detail}"),
    Kind("breaker", "breakers opened", (BreakerOpened,), lambda fact, _: f"{fact.breaker} {fact.detail}"),
    Kind("cap", "requests above a cap", (BudgetReached,), lambda f, _: f"{f.account_id}, per {f.period}"),
    Kind("retry", "failed model requests", (ModelRequestEnd,), _retry),
    Kind("presumed", "requests lost with their process", (ModelRequestEnd,), _presumed),
    Kind("died", "shifts whose process died", (ShiftStarted,), _died),
    Kind("reset", "context resets", (ContextReset,), _reset),
    Kind("context_failed", "failed summaries or handoffs", (ContextFailed,), lambda f, _: f"{f.purpose}: {f.reason}"),
    Kind("lost", "lost sandboxes", (HandsLost,), _reason),
    Kind("stolen", "leases taken over", (LeaseStolen,), lambda fact, _: f"from {fact.from_worker_id}"),
    Kind("events_lost", "lost events", (SessionEventsLost,), lambda fact, _: fact.content),
    Kind("error", "errors", (SessionError,), lambda fact, _: f"{fact.kind}: {fact.message}"),
    Kind("unkept", "failed workspace snapshots", (WorkspaceSnapshotted,), lambda fact, _: fact.error),
    Kind("hook", "hooks that sent work back", (HookRan,), _hook),
    Kind("notice", "notifications not delivered", (NoticeSent,), _notice),
    Kind("egress", "egress proxy failures", (EgressFailed,), _reason),
    Kind("tainted", "sessions that read untrusted content", (SessionTainted,), _reason),
    Kind("host_files", "new files that can run code on this machine", (HandsHostFiles,), _host_files),
    Kind("outside", "refused network requests", (EgressRecorded,), _outside),
)
"""Problems, the most important first."""

NEWS: tuple[Kind, ...] = (
    Kind("unasked", "submissions with unrequested changes", (TaskInspected,), _unasked),
    Kind("concern", "concerns of workers", (TaskHandedIn,), _concern),
    Kind("answer", "answers given", (ApprovalDecided, ApprovalExpired), _answer),
    Kind("steered", "interventions", (UserCancel, UserInterrupt, UserPause), _steered),
    Kind("followed", "moves of the followed branch", (RepoMoved,), _followed),
    Kind("lesson", "lines proposed for AGENTS.md", (LessonProposed,), lambda fact, _: fact.line),
    Kind("learnt", "lines added to AGENTS.md", (LessonApplied,), lambda fact, _: f"{fact.line} (by {fact.by})"),
    Kind("set_up", "set-ups that used the network", (EgressRecorded,), _set_up),
    Kind("finding", "findings", (FindingNoted,), lambda fact, _: f"{fact.task_id}: {fact.text}"),
)
"""Changes besides the work, and other news."""

KINDS: tuple[Kind, ...] = (*WRONG, *NEWS)

_BY_TYPE: dict[type[Fact], list[Kind]] = {}
for _kind in KINDS:
    for _type in _kind.types:
        _BY_TYPE.setdefault(_type, []).append(_kind)


def scan(tree: Tree) -> dict[str, list[Example]]:
    """Find new events of all logs by kind, in the order of each log."""
    found: dict[str, list[Example]] = {}
    for part in tree.parts:
        who = tree.called(part)
        seen = Seen(tree.role(part))
        for event in part.events:
            fact = event.fact
            for kind in _BY_TYPE.get(type(fact), ()):
                words = kind.tell(fact, seen) if tree.new(event) else ""
                if words:
                    text = plain(f"{who}: {words}" if who else words)
                    found.setdefault(kind.name, []).append(Example(text, (of(event),)))
            seen.take(fact)
    return found


def lines(kinds: tuple[Kind, ...], found: dict[str, list[Example]], session_id: str) -> tuple[Line, ...]:
    """Build one line for each kind with events, the latest first."""
    return tuple(
        line
        for kind in kinds
        if (examples := found.get(kind.name))
        for line in lined(kind.name, kind.words, examples[::-1], more_of(examples, session_id))
    )


def more_of(examples: list[Example], session_id: str) -> tuple[str, ...]:
    """Return arguments of the command that lists all of them: one log if possible, else the whole brief as JSON."""
    evidence = [each for example in examples for each in example.evidence]
    sessions = {each.session_id for each in evidence}
    if len(sessions) == 1:
        return ("logs", next(iter(sessions)), "--type", *sorted({each.type for each in evidence}))
    return ("brief", session_id, "--json")
