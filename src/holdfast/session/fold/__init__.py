"""Fold from events to state. Pure: the same events always give the same state.

Each family of facts has a module of its own; this one iterates over the events and selects the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.errors import LogDamaged
from holdfast.facts.base import Erased, Fact
from holdfast.facts.codec import Event, genesis
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.people import UserCancel, UserInterrupt, UserMessage, UserPause, UserResume
from holdfast.facts.session import SessionCreated, SessionError, SessionForked, SessionUpdated
from holdfast.facts.shift import (
    BriefRead,
    BudgetReached,
    EmergencyReleased,
    EmergencyStopped,
    LeaseStolen,
    LimitSet,
    SessionsRemoved,
    ShiftEnded,
    ShiftStarted,
)
from holdfast.facts.task import RepoCommitted
from holdfast.facts.tool import NOT_HANDED_IN, UNTIL, HookRan
from holdfast.session.context.text import estimate, estimate_content, estimate_pinned
from holdfast.session.fold import approvals as fold_approvals
from holdfast.session.fold import calls as fold_calls
from holdfast.session.fold import clock as fold_clock
from holdfast.session.fold import hands as fold_hands
from holdfast.session.fold import requests as fold_requests
from holdfast.session.signs.trace import first_that_counts, note
from holdfast.session.state import Apply, Kinds, State
from holdfast.session.tenant import Tenant, kind_name
from holdfast.session.tools.policy import TREE

_FORKED = str(SessionForked.__struct_config__.tag)

_SKIP_FROM = 200
"""Minimum number of events from which the trace skips those that cannot count."""


def empty(session_id: str, kinds: Kinds) -> State:
    """Return the state before the first event. `kinds` finds the session's kind once the first event names it."""
    return State(session_id=session_id, hash=genesis(session_id), tenant=Tenant(kinds))


def fold(state: State, events: Iterable[Event], *, ahead: Sequence[Event] = ()) -> State:
    """Return the state after `events`. This consumes the given state: continue with the returned one.

    `ahead` are the events to fold next, if they are known: the trace skips what they replace in it.
    """
    events = list(events)
    traced = _traced_from(events, ahead)
    if traced:
        state.trace.clear()  # a step that a skipped event ends would stay open in it
    for event in events:
        seq, fact = event.seq, event.fact
        if seq != state.seq + 1:
            raise ValueError(f"event {seq} does not follow {state.seq} in session {state.session_id}")
        if event.at_us < state.at_us:
            fold_clock.passed(state, event)
        state.seq, state.hash, state.epoch, state.at_us = seq, event.hash, event.epoch, event.at_us
        if type(fact) is not Erased:
            _apply(state, fact, event)
            state.failing.observe(fact, event)
            if seq >= traced:
                note(state.trace, fact, seq)
        elif event.type == _FORKED:
            raise LogDamaged(
                f"event {event.seq} of session {event.session_id} said what is this fork's own and what is its "
                "origin's, and its body was erased: it cannot go on; nothing was written, and its events can still be "
                "read with `holdfast logs`",
                session_id=event.session_id,
                seq=event.seq,
            )
    return state


def _traced_from(events: Sequence[Event], ahead: Sequence[Event] = ()) -> int:
    """Return the position from which the trace needs the events: it keeps only the latest steps, and is costly."""
    later = _traced_from(ahead) if ahead else 0
    if later or len(events) < _SKIP_FROM:
        return later
    first = first_that_counts([(event.seq, event.fact) for event in events])
    return events[first].seq if first else 0


def _apply(state: State, fact: Fact, event: Event) -> None:
    kind = type(fact)
    if apply := _APPLY.get(kind):
        apply(state, fact, event)
    if of_kind := state.tenant.kind.fold.get(kind):
        of_kind(state, fact, event)


def _created(state: State, fact: SessionCreated, event: Event) -> None:
    state.created, state.limits, state.created_us = fact, fact.limits, event.at_us
    state.owner = fact.people.owner
    state.window_tokens = estimate_pinned(fact)
    fold_hands.egress_began(state, fact, event)
    kinds = state.tenant.kinds
    kind = kinds(kind_name(fact))
    state.tenant = Tenant(kinds, kind, kind.began(fact))


def _updated(state: State, fact: SessionUpdated, event: Event) -> None:
    changed = {
        name: value
        for name in ("budget_pico", "max_turns", "context_tokens")
        if (value := getattr(fact, name)) is not None
    }
    state.limits = msgspec.structs.replace(state.limits, **changed)
    state.owner = state.owner if fact.owner is None else fact.owner
    if fact.egress is not None:
        fold_hands.egress_changed(state, fact.egress, event)
    state.reopened()


def _message(state: State, fact: UserMessage, event: Event) -> None:
    state.reopened()
    state.message_seq = event.seq
    fold_hands.forget_failures(state)
    state.failed_calls = 0
    state.clear_signs()
    state.posted(event.seq, estimate_content(fact.content))


def _interrupt(state: State, fact: UserInterrupt, event: Event) -> None:
    state.reopened()
    state.interrupted = event.seq


def _cancel(state: State, fact: UserCancel, event: Event) -> None:
    state.reopened()
    state.cancelled = event.seq


def _pause(state: State, fact: UserPause, event: Event) -> None:
    state.stirred()
    state.paused = event.seq
    state.stop_seq = fact.stop_seq or state.stop_seq


def _resume(state: State, fact: UserResume, event: Event) -> None:
    state.stirred()
    state.paused = state.stop_seq = 0


def _shift_started(state: State, fact: ShiftStarted, event: Event) -> None:
    state.in_shift, state.ended, state.tries, state.fence = True, None, 0, event.fence
    state.home_id = fact.place
    fold_clock.stood(state, fact, event)


def _shift_ended(state: State, fact: ShiftEnded, event: Event) -> None:
    state.in_shift = False
    fold_clock.stood(state, fact, event)
    if fact.status == "released":
        state.ended = None
    else:
        state.ended = fact
        busy = state.hands_at_work() | ({state.hands.hands_id} if state.hands is not None else set())
        state.hands_known = {each: known for each, known in state.hands_known.items() if each in busy}


def _snapshotted(state: State, fact: WorkspaceSnapshotted, event: Event) -> None:
    state.snapshot_error = fact.error
    if not fact.error:
        state.snapshot_seq, state.snapshot = fact.through_seq, fact.snapshot
        _keep_bound(state, fact)


def _keep_bound(state: State, fact: WorkspaceSnapshotted) -> None:
    """Rebind grants after their own call changed the workspace, unless jobs ran beside it (S21)."""
    for held in state.grants:
        alone = held.ran_seq == state.mutated_seq < fact.through_seq and not state.hands_at_work()
        if alone and held.ran_seq and TREE in held.guards:
            held.guards = {**held.guards, TREE: fact.snapshot}


def _hook(state: State, fact: HookRan, event: Event) -> None:
    if fact.event not in (NOT_HANDED_IN, UNTIL):
        state.mutated_seq = event.seq
    if fact.blocked or fact.told:
        state.posted(event.seq, estimate(fact.content))


_APPLY: dict[type[Fact], Apply] = {
    WorkspaceSnapshotted: _snapshotted,
    SessionCreated: _created,
    SessionUpdated: _updated,
    UserMessage: _message,
    UserInterrupt: _interrupt,
    UserCancel: _cancel,
    UserPause: _pause,
    UserResume: _resume,
    ShiftStarted: _shift_started,
    ShiftEnded: _shift_ended,
    **fold_requests.APPLY,
    **fold_calls.APPLY,
    **fold_clock.APPLY,
    **fold_hands.APPLY,
    **fold_approvals.APPLY,
    HookRan: _hook,
}
"""Effect of each fact of the kernel on a state."""

UNFOLDED: frozenset[type[Fact]] = frozenset(
    {
        BriefRead,
        BudgetReached,
        EmergencyReleased,
        EmergencyStopped,
        LeaseStolen,
        LimitSet,
        RepoCommitted,
        SessionError,
        SessionsRemoved,
    }
)
"""Facts of the kernel that do not change the state."""
