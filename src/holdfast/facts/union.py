"""The union of all facts, with an owner for each."""

from __future__ import annotations

from typing import get_args

from holdfast.facts.base import Fact
from holdfast.facts.duty import (
    AlertAcknowledged,
    AlertCleared,
    AlertRaised,
    DutyChanged,
    FiringEnded,
    ScheduleRewound,
    SourcePolled,
    TriggerDead,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    TriggerReplayed,
    TriggerSkipped,
    ValueReported,
)
from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    EnvironmentRecorded,
    HandsHostFiles,
    HandsLost,
    HandsProvisioned,
    HandsReleased,
    HandsRestored,
    SessionTainted,
    WorkspaceSnapshotted,
)
from holdfast.facts.items import (
    ItemAudited,
    ItemEnded,
    ItemFailed,
    ItemQuarantined,
    ItemsAdded,
    ItemsCheckpoint,
    ItemsForecast,
    ItemsListed,
    ItemsReduced,
    ItemsRemoved,
    ItemsRetried,
    ItemStarted,
)
from holdfast.facts.mission import (
    ContractAmended,
    ContractSealed,
    CriterionChecked,
    FlakeNoted,
    LessonApplied,
    LessonProposed,
    MissionEscalated,
    MissionFinished,
    MissionOpened,
    MissionPlanned,
    MissionReplanned,
    PlannerOpened,
    PlanRefused,
    ReplanAsked,
    VerificationEnded,
    VerificationStarted,
    WorkSubmitted,
)
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ContextCompacted,
    ContextFailed,
    ContextReset,
    ContextSign,
    ModelRequestEnd,
    ModelRequestStart,
    PhaseEnded,
    RuleBreached,
    RuleChecked,
)
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    NoticeSent,
    UserCancel,
    UserInterrupt,
    UserMessage,
    UserPause,
    UserResume,
)
from holdfast.facts.session import SessionCreated, SessionError, SessionEventsLost, SessionForked, SessionUpdated
from holdfast.facts.shift import (
    BreakerClosed,
    BreakerOpened,
    BriefRead,
    BudgetReached,
    BudgetSet,
    ChildCancelled,
    ChildFinished,
    ChildMessaged,
    ChildOpened,
    ClockSet,
    EmergencyReleased,
    EmergencyStopped,
    LeaseStolen,
    LimitSet,
    SessionsRemoved,
    ShiftEnded,
    ShiftStarted,
)
from holdfast.facts.task import (
    BatchRefused,
    CheckProbed,
    CheckProved,
    FindingNoted,
    JudgeOpened,
    MergeStarted,
    RatchetViolated,
    RepoCommitted,
    RepoConflicted,
    RepoMerged,
    RepoMoved,
    TaskEnded,
    TaskHandedIn,
    TaskInspected,
    TaskJudged,
    TaskQueued,
    TaskRefused,
    TaskStarted,
)
from holdfast.facts.tool import (
    HookRan,
    JobEnded,
    JobLine,
    JobStarted,
    ServiceEnded,
    ServiceStarted,
    ToolDispatched,
    ToolOutcomeUnknown,
    ToolResult,
)

KernelFact = (
    SessionCreated
    | SessionForked
    | SessionUpdated
    | SessionError
    | UserMessage
    | UserInterrupt
    | UserCancel
    | UserPause
    | UserResume
    | ShiftStarted
    | ClockSet
    | LeaseStolen
    | ShiftEnded
    | ModelRequestStart
    | ModelRequestEnd
    | AgentThinking
    | AgentMessage
    | AgentToolUse
    | ToolDispatched
    | ToolResult
    | ToolOutcomeUnknown
    | HandsProvisioned
    | HandsLost
    | HandsReleased
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalExpired
    | ApprovalSuperseded
    | ApprovalSeen
    | NoticeSent
    | ChildOpened
    | ChildMessaged
    | ChildCancelled
    | ChildFinished
    | ContextCompacted
    | ContextReset
    | ContextSign
    | ContextFailed
    | PhaseEnded
    | RuleChecked
    | RuleBreached
    | BudgetSet
    | LimitSet
    | BudgetReached
    | BreakerOpened
    | BreakerClosed
    | EmergencyStopped
    | EmergencyReleased
    | SessionsRemoved
    | BriefRead
    | WorkspaceSnapshotted
    | HandsRestored
    | HandsHostFiles
    | JobStarted
    | JobLine
    | JobEnded
    | ServiceStarted
    | ServiceEnded
    | EgressRecorded
    | EgressFailed
    | SessionTainted
    | EnvironmentRecorded
    | HookRan
    | RepoCommitted
    | SessionEventsLost
)
"""Facts of every kind of session. The kernel owns and folds them."""

MissionFact = (
    ContractSealed
    | ContractAmended
    | MissionOpened
    | MissionPlanned
    | MissionReplanned
    | PlannerOpened
    | PlanRefused
    | ReplanAsked
    | MissionEscalated
    | MissionFinished
    | VerificationStarted
    | CheckProbed
    | CheckProved
    | CriterionChecked
    | VerificationEnded
    | FlakeNoted
    | LessonProposed
    | LessonApplied
    | TaskStarted
    | TaskHandedIn
    | FindingNoted
    | TaskInspected
    | RatchetViolated
    | TaskRefused
    | JudgeOpened
    | TaskJudged
    | TaskQueued
    | TaskEnded
    | MergeStarted
    | RepoMerged
    | RepoConflicted
    | RepoMoved
    | BatchRefused
)
"""Facts of a mission, owned by `kinds/mission`. Nothing in the kernel names one."""

RoleFact = WorkSubmitted
"""Fact of a session that works for a mission."""

ItemsFact = (
    ItemsAdded
    | ItemsListed
    | ItemsRemoved
    | ItemsRetried
    | ItemStarted
    | ItemEnded
    | ItemFailed
    | ItemQuarantined
    | ItemAudited
    | ItemsCheckpoint
    | ItemsForecast
    | ItemsReduced
)
"""Facts of a run over a list, owned by `kinds/items`."""

DutyFact = (
    DutyChanged
    | TriggerOffered
    | TriggerFired
    | TriggerSkipped
    | TriggerMissed
    | TriggerDead
    | TriggerReplayed
    | ScheduleRewound
    | SourcePolled
    | FiringEnded
    | ValueReported
    | AlertRaised
    | AlertCleared
    | AlertAcknowledged
)
"""Facts of a duty, owned by `kinds/duty`."""

AnyFact = KernelFact | MissionFact | RoleFact | ItemsFact | DutyFact
"""Every fact that can be stored."""


def type_of(fact: Fact) -> str:
    """Return the event type of a fact, for example `user.message`."""
    return str(type(fact).__struct_config__.tag)


FACT_TYPES: dict[str, type[Fact]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyFact)}
"""Event type → class."""
