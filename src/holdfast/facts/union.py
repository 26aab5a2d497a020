"""The whole vocabulary: one tagged union of all families."""

from __future__ import annotations

from typing import get_args

from holdfast.facts.base import Fact
from holdfast.facts.budget import BreakerClosed, BreakerOpened, BudgetReached, BudgetSet
from holdfast.facts.child import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.context import (
    ContextCompacted,
    ContextFailed,
    ContextReset,
    ContextSign,
    PhaseEnded,
    RuleBreached,
    RuleChecked,
)
from holdfast.facts.contract import ContractAmended, ContractSealed
from holdfast.facts.egress import EgressFailed, EgressRecorded, SessionTainted
from holdfast.facts.environment import EnvironmentRecorded
from holdfast.facts.hands import HandsHostFiles, HandsLost, HandsProvisioned, HandsReleased, HandsRestored
from holdfast.facts.home import BriefRead, EmergencyReleased, EmergencyStopped
from holdfast.facts.hook import HookRan
from holdfast.facts.job import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted
from holdfast.facts.mission import (
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
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    NoticeSent,
)
from holdfast.facts.proof import CheckProbed, CheckProved
from holdfast.facts.repo import BatchRefused, MergeStarted, RepoCommitted, RepoConflicted, RepoMerged, RepoMoved
from holdfast.facts.session import SessionCreated, SessionError, SessionEventsLost, SessionForked, SessionUpdated
from holdfast.facts.shift import ClockSet, LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.task import (
    FindingNoted,
    JudgeOpened,
    RatchetViolated,
    TaskEnded,
    TaskHandedIn,
    TaskInspected,
    TaskJudged,
    TaskQueued,
    TaskRefused,
    TaskStarted,
)
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage, UserPause, UserResume
from holdfast.facts.workspace import WorkspaceSnapshotted

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
    | BudgetReached
    | BreakerOpened
    | BreakerClosed
    | EmergencyStopped
    | EmergencyReleased
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
"""Facts of every kind of session: their owner is the kernel, which folds all of them."""

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
"""Facts of a mission: `kinds/mission` owns them. Nothing in the kernel names one."""

RoleFact = WorkSubmitted
"""The fact of a session that works for a mission."""

AnyFact = KernelFact | MissionFact | RoleFact
"""Every fact that can be stored."""


def type_of(fact: Fact) -> str:
    """The event type of a fact, for example `user.message`."""
    return str(type(fact).__struct_config__.tag)


FACT_TYPES: dict[str, type[Fact]] = {str(cls.__struct_config__.tag): cls for cls in get_args(AnyFact)}
"""Event type → class."""
