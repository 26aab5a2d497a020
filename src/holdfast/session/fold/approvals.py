"""Fold of inbox items, their answers, and notifications (S21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    NoticeSent,
)
from holdfast.facts.shift import BudgetSet
from holdfast.session.fold import clock as fold_clock
from holdfast.session.fold.hands import use_answered, use_asked, use_superseded
from holdfast.session.state import Ask, GrantHeld, Notice, State, notice_key
from holdfast.session.tools.policy import GRANT, covers


def _requested(state: State, fact: ApprovalRequested, event: Event) -> None:
    state.asks[fact.item_id] = Ask(
        fact.item_id,
        event.seq,
        fact.kind,
        fact.call_id,
        fact.action_digest,
        fact.guards,
        event.at_us,
        fact.default,
        fact.expires_us,
        fact.remind_us,
        fact.escalate_us,
        fact.account_id,
        fact.uncounted,
        notify=fact.notify,
    )
    if fact.kind == "egress":
        use_asked(state, fact)


def _decided(state: State, fact: ApprovalDecided, event: Event) -> None:
    state.stirred()
    ask = state.asks.get(fact.item_id)
    if ask is None:
        return
    if ask.kind == "egress":
        use_answered(state, ask, fact, event)
        return
    ask.verdict, ask.decided_seq, ask.note = fact.verdict, event.seq, fact.note
    if fact.grant is not None and fact.verdict == "approve":
        state.grants.append(GrantHeld(event.seq, event.at_us, fact.grant, guards=ask.guards, uncounted=ask.uncounted))
    _rebind(state, ask)
    if ask.kind == "budget":
        _money_line(state, ask, fact, event)


def _rebind(state: State, ask: Ask) -> None:
    """Rebind outdated grants that cover an approved call to the guards that the user saw."""
    call = next((each for each in state.calls if each.call_id == ask.call_id), None)
    for held in state.grants if call is not None and ask.kind == "tool" else ():
        assert call is not None
        if (
            held.outdated
            and ask.verdict == "approve"
            and covers(held.grant, call.name, call.parts, whole=call.argument)
        ):
            held.guards, held.uncounted, held.outdated = ask.guards, ask.uncounted, False


def _money_line(state: State, ask: Ask, fact: ApprovalDecided, event: Event) -> None:
    """Retry the request under a new cap. A refusal is kept until the budget suffices, so the item is not repeated."""
    if fact.verdict == "deny":
        return
    del state.asks[ask.item_id]
    if fact.budget_pico is not None and fact.account_id == _own_account(state, event):
        state.limits = msgspec.structs.replace(state.limits, budget_pico=fact.budget_pico)


def _own_account(state: State, event: Event) -> str:
    """Return the account of an event; an event that a fork shares names its origin's account."""
    accounts = state.created.accounts if state.created else ()
    return accounts[0] if accounts else event.session_id


def _expired(state: State, fact: ApprovalExpired, event: Event) -> None:
    state.stirred()
    ask = state.asks.get(fact.item_id)
    if ask is not None and ask.kind == "egress":
        use_answered(state, ask, fact, event)
    elif ask is not None and ask.verdict is None:
        ask.verdict, ask.decided_seq, ask.expired = fact.verdict, event.seq, True


def _superseded(state: State, fact: ApprovalSuperseded, event: Event) -> None:
    for held in state.grants:
        held.outdated = held.outdated or fact.item_id == f"{GRANT}{held.seq}"
    ask = state.asks.pop(fact.item_id, None)
    if ask is not None and ask.kind == "egress":
        use_superseded(state, ask, fact, event)
    for call in state.calls:
        if ask is not None and call.call_id == ask.call_id:
            call.replaces = fact.item_id


def _seen(state: State, fact: ApprovalSeen, event: Event) -> None:
    fold_clock.stood(state, fact, event)
    ask = state.asks.get(fact.item_id)
    if ask is None:
        return
    if not ask.seen_us and ask.expires_us is not None and (fact.expires_us or 0) > ask.expires_us:
        ask.expires_us, ask.expires_seq = fact.expires_us, event.seq
    ask.seen_us = ask.seen_us or event.at_us
    ended = state.ended
    if ended is not None and ended.status == "parked" and ask.expires_us is not None:
        if ended.due_us is None:
            ended = msgspec.structs.replace(ended, boot_id=fact.boot_id, booted_us=fact.booted_us)
        due_us = min(ended.due_us or ask.expires_us, ask.expires_us)
        state.ended = msgspec.structs.replace(ended, due_us=due_us)


def _noticed(state: State, fact: NoticeSent, event: Event) -> None:
    key = notice_key(fact.item_id, fact.round, fact.target)
    known = state.notices.get(key)
    state.notices[key] = Notice((known.tries if known else 0) + (not fact.held), fact.again_us)


def _budget_set(state: State, fact: BudgetSet, event: Event) -> None:
    state.stirred()
    if fact.period == "total" and fact.account_id == _own_account(state, event):
        state.limits = msgspec.structs.replace(state.limits, budget_pico=fact.cap_pico)


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    ApprovalRequested: _requested,
    ApprovalDecided: _decided,
    ApprovalExpired: _expired,
    ApprovalSuperseded: _superseded,
    ApprovalSeen: _seen,
    NoticeSent: _noticed,
    BudgetSet: _budget_set,
}
