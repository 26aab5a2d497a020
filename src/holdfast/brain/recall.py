"""From log to state: the newest valid snapshot, then the tail, verified as stored (S1, S19)."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import msgspec

from holdfast.errors import UnknownSession
from holdfast.facts.base import Fact
from holdfast.facts.child import ChildFinished
from holdfast.facts.codec import Event
from holdfast.facts.context import ContextCompacted, ContextReset, RuleBreached
from holdfast.facts.egress import EgressFailed
from holdfast.facts.environment import EnvironmentRecorded
from holdfast.facts.hands import HandsRestored
from holdfast.facts.job import JobEnded, JobLine, ServiceEnded
from holdfast.facts.mission import HookRan
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalRequested, ApprovalSuperseded
from holdfast.facts.session import SessionEventsLost, SessionForked
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.log.base import Log, Snapshot, Snapshots
from holdfast.session.fold import empty, fold
from holdfast.session.state import State

PAGE = 5_000
"""Events read at once: a long log is folded without being held in memory."""

_SHOWN = (
    UserMessage,
    AgentThinking,
    AgentMessage,
    AgentToolUse,
    ToolResult,
    ToolOutcomeUnknown,
    ChildFinished,
    ContextCompacted,
    ContextReset,
    RuleBreached,
    SessionForked,
    SessionEventsLost,
    ApprovalRequested,
    ApprovalDecided,
    ApprovalExpired,
    ApprovalSuperseded,
    EgressFailed,
    EnvironmentRecorded,
    HandsRestored,
    JobEnded,
    JobLine,
    ServiceEnded,
    HookRan,
)

_FOLD_SOURCES = (
    ("holdfast.facts", None),
    (
        "holdfast.session",
        ("digests", "fold", "notes", "phrases", "policy", "render", "state", "tokens", "tools", "trace"),
    ),
)


@cache
def fold_digest() -> str:
    """SHA-256 hex over the sources of events, codec and fold: a snapshot is good for exactly these."""
    digest = hashlib.sha256()
    for package, names in _FOLD_SOURCES:
        files = sorted(resources.files(package).iterdir(), key=lambda file: file.name)
        for file in files:
            if file.name.endswith(".py") and (names is None or file.name.startswith(names)):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


async def recall(session_id: str, log: Log, snapshots: Snapshots) -> tuple[State, dict[int, Fact]]:
    """The state of a session as its log has it now, and the bodies of its last page of events.

    Raises `UnknownSession`, `LogDamaged`, `SchemaTooNew`.
    """
    state = empty(session_id)
    snapshot = await snapshots.load(session_id, fold_digest())
    if snapshot is not None:
        state = msgspec.msgpack.decode(snapshot.state, type=State)
    while True:
        events = await log.read(session_id, after=state.seq, prev=state.hash, limit=PAGE)
        state = fold(state, events)
        if len(events) < PAGE:
            break
    if state.seq == 0:
        raise UnknownSession(f"no session {session_id}; `holdfast ps --all` lists them")
    return state, shown(events)


def shown(events: list[Event]) -> dict[int, Fact]:
    """The bodies among these events that a context may show, by position."""
    return {event.seq: event.fact for event in events if isinstance(event.fact, _SHOWN)}


async def remember(state: State, snapshots: Snapshots) -> None:
    """Keep a snapshot of this state."""
    body = msgspec.msgpack.encode(state)
    await snapshots.save(Snapshot(state.session_id, state.seq, state.hash, fold_digest(), body))
