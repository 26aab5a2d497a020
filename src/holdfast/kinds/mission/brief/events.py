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


def _unknown(fact: ToolOutcomeUnknown | JobEnded, seen: Seen) -> str:
    if isinstance(fact, JobEnded):
        return f"job {fact.job_id}" if fact.outcome == "unknown" else ""
    call = seen.calls.get(fact.call_id)
    argument = next((str(value) for value in call.input.values()), "") if call is not None else ""
    return f"{call.name if call is not None else 'a call'} {plain(argument, 80)}: {fact.reason}"


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


WRONG: tuple[Kind, ...] = (
    Kind("unknown", "calls with an unknown outcome", (ToolOutcomeUnknown, JobEnded), _unknown),
    Kind(
        "ratchet",
        "ratchet violations refused",
        (RatchetViolated,),
        lambda f, _: f"{f.task_id}: {listed([f'{each.rule} {each.path}' for each in f.violations])}",
    ),
    Kind(
        "astray",
        "moves of the branch from outside",
        (RepoMoved,),
        lambda f, _: "" if f.followed else f"{f.ref} was found at {f.found[:SHORT] or 'nothing'}",
    ),
    Kind("escalated", "questions on how to go on", (MissionEscalated,), lambda fact, _: fact.why or _NO_REASON),
    Kind("unverified", "failed verifications", (VerificationEnded,), lambda f, _: f.error and f"{f.effect}: {f.error}"),
    Kind("verdict_refused", "verdicts refused", (TaskJudged, ToolResult), _verdict_refused),
    Kind("judge", "refusals by judges", (TaskJudged,), _judged),
    Kind("batch", "red merges refused", (BatchRefused,), _batch),
    Kind("base_refused", "new commits of the base not merged", (BatchRefused, RepoConflicted), _base_refused),
    Kind(
        "conflict", "merge conflicts", (RepoConflicted,), lambda f, _: f.task_id and f"{f.task_id} in {listed(f.paths)}"
    ),
    Kind("sent_back", "submissions sent back", (TaskRefused,), _sent_back),
    Kind(
        "flake",
        "flaky checks",
        (FlakeNoted,),
        lambda f, _: f"{f.criterion} failed {f.failures} of {f.runs} runs on one tree",
    ),
    Kind("plan_refused", "plans refused", (PlanRefused,), lambda fact, _: next(iter(fact.problems), _NO_REASON)),
    Kind(
        "replanned",
        "new plans",
        (MissionReplanned,),
        lambda f, _: f"plan {f.round + 1}, {counted(len(f.tasks), 'task')}: {f.why or 'a task was taken apart'}",
    ),
    Kind("rule", "breaches of pinned rules", (RuleBreached,), lambda fact, _: f"{fact.rule}: {fact.detail}"),
    Kind("breaker", "breakers opened", (BreakerOpened,), lambda fact, _: f"{fact.breaker} {fact.detail}"),
    Kind("cap", "requests above a cap", (BudgetReached,), lambda f, _: f"{f.account_id}, per {f.period}"),
    Kind(
        "retry",
        "failed model requests",
        (ModelRequestEnd,),
        lambda f, _: f"{f.error_kind or 'error'} {f.message}" if f.outcome == "error" else "",
    ),
    Kind(
        "presumed",
        "requests lost with their process",
        (ModelRequestEnd,),
        lambda f, _: "charged as reserved" if f.outcome == "presumed" else "",
    ),
    Kind(
        "died",
        "shifts whose process died",
        (ShiftStarted,),
        lambda fact, seen: f"process {fact.pid} took over" if seen.in_shift else "",
    ),
    Kind("reset", "context resets", (ContextReset,), lambda f, _: f"{f.cause}{f': {f.detail}' if f.detail else ''}"),
    Kind("context_failed", "failed summaries or handoffs", (ContextFailed,), lambda f, _: f"{f.purpose}: {f.reason}"),
    Kind("lost", "lost sandboxes", (HandsLost,), _reason),
    Kind("stolen", "leases taken over", (LeaseStolen,), lambda fact, _: f"from {fact.from_worker_id}"),
    Kind("events_lost", "lost events", (SessionEventsLost,), lambda fact, _: fact.content),
    Kind("error", "errors", (SessionError,), lambda fact, _: f"{fact.kind}: {fact.message}"),
    Kind("unkept", "failed workspace snapshots", (WorkspaceSnapshotted,), lambda fact, _: fact.error),
    Kind(
        "hook",
        "hooks that sent work back",
        (HookRan,),
        lambda f, _: f"{f.event} {f.command}: {f.content}" if f.blocked and f.event != NOT_HANDED_IN else "",
    ),
    Kind(
        "notice",
        "notifications not delivered",
        (NoticeSent,),
        lambda f, _: "" if f.ok or f.held or f.again_us is not None else f"{f.target}: {f.detail}",
    ),
    Kind("egress", "egress proxy failures", (EgressFailed,), _reason),
    Kind("tainted", "sessions that read untrusted content", (SessionTainted,), _reason),
    Kind(
        "host_files",
        "new files that can run code on this machine",
        (HandsHostFiles,),
        lambda f, _: "" if f.before else listed([f"{file.path} ({file.kind})" for file in f.files]),
    ),
    Kind(
        "outside",
        "refused network requests",
        (EgressRecorded,),
        lambda f, _: listed(
            [f"{each.count} to {each.host}:{each.port}" for each in f.seen if each.verdict == "refused"]
        ),
    ),
)
"""Problems, the most important first."""

NEWS: tuple[Kind, ...] = (
    Kind(
        "unasked",
        "submissions with unrequested changes",
        (TaskInspected,),
        lambda f, _: f"{f.task_id}: {listed(f.unasked)}" if f.unasked else "",
    ),
    Kind("concern", "concerns of workers", (TaskHandedIn,), _concern),
    Kind("answer", "answers given", (ApprovalDecided, ApprovalExpired), _answer),
    Kind("steered", "interventions", (UserCancel, UserInterrupt, UserPause), _steered),
    Kind(
        "followed",
        "moves of the followed branch",
        (RepoMoved,),
        lambda f, _: f"{f.ref} to {f.found[:SHORT]}" if f.followed else "",
    ),
    Kind("lesson", "lines proposed for AGENTS.md", (LessonProposed,), lambda fact, _: fact.line),
    Kind("learnt", "lines added to AGENTS.md", (LessonApplied,), lambda fact, _: f"{fact.line} (by {fact.by})"),
    Kind(
        "set_up",
        "set-ups that used the network",
        (EgressRecorded,),
        lambda f, _: listed([f"{each.count} {each.verdict} to {each.host}:{each.port}" for each in f.seen if f.set_up]),
    ),
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
