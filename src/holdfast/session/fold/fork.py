"""The fold of a fork: what a session that begins in the middle of another one takes over, and what not (S22)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.session import SessionForked
from holdfast.facts.shift import ShiftEnded
from holdfast.session.context.notes import FORKED_CALL, note_of
from holdfast.session.context.tokens import estimate
from holdfast.session.fold import egress as fold_egress
from holdfast.session.state import ResponseItem, State
from holdfast.session.tenant import Tenant

RESTING = ShiftEnded(status="parked", reason="person", detail="a fork: it rests until it is woken or told something")
"""How a fork stands before anybody does anything with it: nothing makes it run by itself."""

MADE_ANEW = frozenset(
    "session_id seq at_us hash epoch created limits owner ended tenant".split()
    + "snapshot_seq snapshot_error snapshot outside failing".split()
)
"""What a fork has of its own from its first event on."""

CARRIED = frozenset(
    "created_us window window_tokens pending unseen calls seen context trace responses summaries handoffs rule_uses "
    "message_seq providers mutated_seq set_back boot_id booted_us clock_seq".split()
)
"""What goes on where the origin was. Time and uses that a rule allows go on counting: a fork renews no permission."""

NOT_CARRIED = frozenset(
    "request failure tries attempts hands hands_known in_shift interrupted cancelled paused stop_seq usage cost_pico "
    "unpriced spend asks grants notices children jobs services failed_calls breaker environment environment_failed "
    "environment_error workspace_with had_hands host_files uncounted".split()
)
"""What a fork begins without: what runs, was reserved or spent, what people said, who reports to the origin."""


def _forked(state: State, fact: SessionForked, event: Event) -> None:
    """A fork begins where its origin was; what was open there is not its own."""
    assert state.created is not None
    limits = msgspec.structs.replace(state.limits, budget_pico=fact.budget_pico)
    state.created = msgspec.structs.replace(
        state.created, workspace=fact.workspace, accounts=fact.accounts, limits=limits, key=fact.key, parent=None
    )
    state.created = msgspec.structs.replace(state.created, mission=None, role=None)
    state.limits, state.owner = limits, fact.owner
    state.tenant = Tenant(state.tenant.kinds)
    _end_calls(state, event)
    fresh = State(session_id=state.session_id)
    for name in NOT_CARRIED:
        setattr(state, name, getattr(fresh, name))
    state.ended = RESTING
    state.snapshot_seq, state.snapshot_error, state.snapshot = event.seq, "", fact.snapshot
    state.clear_signs()
    fold_egress.forked(state)
    state.posted(event.seq, estimate(note_of(fact)))


def _end_calls(state: State, event: Event) -> None:
    opened = state.open_calls()
    if not opened:
        return
    item = state.window[-1]
    assert isinstance(item, ResponseItem)
    tokens = estimate(FORKED_CALL)
    for call in opened:
        call.end = "cancelled"
        item.results[state.calls.index(call)] = event.seq
        item.tokens += tokens
        item.tool_tokens += tokens
        state.window_tokens += tokens
        state.context.tool_tokens += tokens
    state.unseen = True


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {SessionForked: _forked}
