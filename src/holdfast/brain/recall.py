"""State of a session from its log: the newest valid snapshot, then the verified tail (S1, S19)."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from holdfast.errors import HoldfastError, UnknownSession
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import EgressFailed, EnvironmentRecorded, HandsRestored
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse, ContextCompacted, ContextReset, RuleBreached
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalRequested, ApprovalSuperseded, UserMessage
from holdfast.facts.session import SessionEventsLost, SessionForked
from holdfast.facts.shift import ChildFinished
from holdfast.facts.tool import HookRan, JobEnded, JobLine, ServiceEnded, ToolOutcomeUnknown, ToolResult
from holdfast.log.base import Log, Snapshot, Snapshots
from holdfast.session.fold import empty, fold
from holdfast.session.state import Kinds, State
from holdfast.session.tenant import Tenant

PAGE = 5_000
"""Number of events read at once, so that a long log is folded without holding it in memory."""

_SHOWN: frozenset[type[Fact]] = frozenset(
    {
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
    }
)

KERNEL = ("holdfast.facts", "holdfast.session")
"""Packages covered by the digest of the kernel's fold."""


class _Kept(msgspec.Struct, array_like=True):
    """A state as stored in a snapshot: the kernel's bytes, and those of its kind with the digest of the kind's fold."""

    kernel: bytes
    kind: str
    digest: str
    own: bytes


@cache
def digest_of(*modules: str) -> str:
    """Return the SHA-256 hex over the sources of modules; a package includes everything below it."""
    digest = hashlib.sha256()
    for module in modules:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"no source of {module}")
        source = Path(spec.origin)
        for path in sorted(source.parent.rglob("*.py")) if spec.submodule_search_locations else [source]:
            digest.update(f"{module}/{path.relative_to(source.parent)}".encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def fold_digest() -> str:
    """Return the digest of the kernel's fold: events, codec, and state. A snapshot is valid for exactly these (S19)."""
    return digest_of(*KERNEL)


def encode(state: State) -> bytes:
    """Encode a state for a snapshot."""
    kind, own = state.tenant.kind, state.tenant.own
    kernel = msgspec.msgpack.encode(state, enc_hook=lambda tenant: None)
    return msgspec.msgpack.encode(_Kept(kernel, kind.name, digest_of(*kind.sources), msgspec.msgpack.encode(own)))


def decode(body: bytes, kinds: Kinds) -> State | None:
    """Decode a state from a snapshot; None when the fold of its kind has changed since."""
    kept = msgspec.msgpack.decode(body, type=_Kept)
    kind = kinds(kept.kind)
    if kept.digest != digest_of(*kind.sources):
        return None
    own = msgspec.msgpack.decode(kept.own, type=kind.state_type) if kind.state_type is not None else None
    return msgspec.msgpack.decode(kept.kernel, type=State, dec_hook=lambda wanted, nothing: Tenant(kinds, kind, own))


async def recall(session_id: str, log: Log, snapshots: Snapshots, kinds: Kinds) -> tuple[State, dict[int, Fact]]:
    """Return the current state of a session, and the bodies of its last page of events.

    Raises `UnknownSession`, `LogDamaged`, `SchemaTooNew`.
    """
    snapshot = await snapshots.load(session_id, fold_digest())
    state = (decode(snapshot.state, kinds) if snapshot is not None else None) or empty(session_id, kinds)
    events = await log.read(session_id, after=state.seq, prev=state.hash, limit=PAGE)
    while len(events) == PAGE:
        last = events[-1]
        ahead = await log.read(session_id, after=last.seq, prev=last.hash, limit=PAGE)
        state, events = fold(state, events, ahead=ahead), ahead
    state = fold(state, events)
    if state.seq == 0:
        raise UnknownSession(f"no session {session_id}; `holdfast ps --all` lists them")
    return state, shown(events)


async def may_testify(session_id: str, hands_id: str, log: Log, snapshots: Snapshots, kinds: Kinds) -> bool:
    """Return True while a session's log needs the journal of these hands. An unreadable log may."""
    try:
        state, _ = await recall(session_id, log, snapshots, kinds)
    except UnknownSession:
        return False
    except HoldfastError:
        return True
    return hands_id in state.hands_known


def shown(events: list[Event]) -> dict[int, Fact]:
    """Return the bodies among these events that a context may show, by position."""
    return {event.seq: event.fact for event in events if type(event.fact) in _SHOWN}


async def remember(state: State, snapshots: Snapshots) -> None:
    """Save a snapshot of this state."""
    await snapshots.save(Snapshot(state.session_id, state.seq, state.hash, fold_digest(), encode(state)))
