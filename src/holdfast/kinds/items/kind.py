"""Runs over a list as a kind of session: its fold. An event of one item changes only what belongs to that item,
so that a long list is folded and continued at the same cost per item as a short one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
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
from holdfast.facts.people import UserResume
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.shift import BreakerClosed, BudgetSet, ChildCancelled, ChildFinished, ChildMessaged
from holdfast.kinds.items.state import QUARANTINE, ItemsState, ItemState, Work, items_of, items_state, rest
from holdfast.session.state import Apply, State
from holdfast.session.tenant import Kind

BAR = 30
"""Columns of the progress bar."""


# --- the list ----------------------------------------------------------------------------------------


def _added(state: State, fact: ItemsAdded, event: Event) -> None:
    own = items_state(state)
    for place, item in enumerate(fact.items):
        before = own.items.get(item.key)
        if before is not None and not fact.replace:
            continue
        if before is not None:
            _withdraw(own, item.key, before)
        index = own.listed + place if fact.listed else -1
        own.items[item.key] = ItemState(event.seq, place, index=index if before is None else before.index)
        own.todo[item.key] = None
    own.listed += len(fact.items) if fact.listed else 0
    own.added[event.seq] = event.at_us
    _reopen(state, own)


def _removed(state: State, fact: ItemsRemoved, event: Event) -> None:
    own = items_state(state)
    for key in fact.keys:
        if (before := own.items.pop(key, None)) is not None:
            _withdraw(own, key, before)
    _reopen(state, own)


def _retried(state: State, fact: ItemsRetried, event: Event) -> None:
    own = items_state(state)
    for key in fact.keys or tuple(own.items):
        item = own.items.get(key)
        if item is not None and item.status == "quarantined":
            item.status, item.tries = "todo", 0
            own.quarantined -= 1
            own.todo[key] = None
    own.accepted = min(own.accepted, own.quarantined)
    _reopen(state, own)


def _withdraw(own: ItemsState, key: str, item: ItemState) -> None:
    """Take an item back: its result no longer counts, and its child is not needed."""
    own.todo.pop(key, None)
    own.submitted.pop(key, None)
    own.done -= item.status == "done"
    own.quarantined -= item.status == "quarantined"
    own.rewrite = own.rewrite or item.status == "done"
    work = own.works.get(item.child_id)
    if work is not None and work.keys == [key]:
        own.lost.append(item.child_id)


def _reopen(state: State, own: ItemsState) -> None:
    state.reopened()
    own.reduced, own.list_problem = None, ""


# --- tries -------------------------------------------------------------------------------------------


def _started(state: State, fact: ItemStarted, event: Event) -> None:
    own = items_state(state)
    cost_pico = own.idle.pop(fact.child_id, 0)
    own.works[fact.child_id] = Work(
        list(fact.keys), fact.attempt, fact.purpose, event.seq, event.at_us, cost_pico=cost_pico
    )
    own.began_us = own.began_us or event.at_us
    own.reductions += fact.purpose == "reduce"
    for key in fact.keys:
        item = own.items[key]
        item.child_id = fact.child_id
        own.submitted.pop(key, None)
        if fact.purpose == "work":
            own.todo.pop(key, None)
            item.status = "running"
            item.tries += 1


def _reported(state: State, fact: ChildFinished, event: Event) -> None:
    own = items_state(state)
    state.pending.clear()  # reports are no messages: a run asks no model
    work = own.works.get(fact.child_id)
    if work is None:
        return
    work.finished_seq = event.seq
    work.waits = fact.status == "parked" and fact.reason == "budget"
    if not work.waits and fact.child_id not in own.over:
        own.over.append(fact.child_id)


def _mine(own: ItemsState, key: str, child_id: str) -> ItemState | None:
    """Return the item if that child works on it; None if it was changed or removed meanwhile."""
    item = own.items.get(key)
    return item if item is not None and item.child_id == child_id else None


def _settle(state: State, own: ItemsState, fact: ItemEnded | ItemFailed | ItemQuarantined | ItemAudited) -> None:
    """Take an item off the work of its child. A child without items is over, or idle in a rolling context."""
    own.spend(fact.cost_pico)
    if (item := _mine(own, fact.key, fact.child_id)) is not None:
        known = item.cost_pico is not None and fact.cost_pico is not None
        item.cost_pico = (item.cost_pico or 0) + (fact.cost_pico or 0) if known else None
    work = own.works.get(fact.child_id)
    if work is None:
        return
    if fact.key in work.keys:
        work.keys.remove(fact.key)
    if work.keys:
        return
    rolls = work.purpose == "work" and items_of(state.created).context == "rolling"
    if rolls and isinstance(fact, ItemEnded):
        before = work.cost_pico
        own.idle[fact.child_id] = None if before is None or fact.cost_pico is None else before + fact.cost_pico
    _over(state, own, fact.child_id)


def _over(state: State, own: ItemsState, child_id: str) -> None:
    own.works.pop(child_id, None)
    own.over = [each for each in own.over if each != child_id]
    own.lost = [each for each in own.lost if each != child_id]
    if child_id not in own.idle:
        state.children.pop(child_id, None)


def _ended(state: State, fact: ItemEnded, event: Event) -> None:
    own = items_state(state)
    item = _mine(own, fact.key, fact.child_id)
    _settle(state, own, fact)
    if item is None:
        return
    own.ended, own.ended_us = own.ended + 1, event.at_us
    item.ended_seq, item.child_id = event.seq, ""
    if fact.audit:
        item.status = "submitted"
        own.submitted[fact.key] = None
    else:
        _done(own, item)


def _done(own: ItemsState, item: ItemState) -> None:
    item.status = "done"
    own.done += 1
    own.unwritten.append(item.ended_seq)


def _failed(state: State, fact: ItemFailed, event: Event) -> None:
    own = items_state(state)
    item = _mine(own, fact.key, fact.child_id)
    _settle(state, own, fact)
    own.failed_tries += 1
    if item is not None:
        _again(own, fact.key, item, event)


def _again(own: ItemsState, key: str, item: ItemState, event: Event) -> None:
    item.status, item.child_id, item.failed_seq = "todo", "", event.seq
    own.todo[key] = None


def _quarantined(state: State, fact: ItemQuarantined, event: Event) -> None:
    own = items_state(state)
    item = _mine(own, fact.key, fact.child_id)
    _settle(state, own, fact)
    own.failed_tries += 1
    if item is not None:
        item.status, item.child_id, item.failed_seq = "quarantined", "", event.seq
        own.quarantined += 1
        own.ended, own.ended_us = own.ended + 1, event.at_us


def _audited(state: State, fact: ItemAudited, event: Event) -> None:
    own = items_state(state)
    item = _mine(own, fact.key, fact.child_id)
    if item is not None and not fact.ok and item.tries >= items_of(state.created).tries:
        own.audited, own.refused = own.audited + 1, own.refused + 1
        return  # `item.quarantined` follows in the same transaction, and settles the work
    _settle(state, own, fact)
    if item is None:
        return
    own.audited += not fact.unknown
    own.refused += not fact.ok
    if fact.ok:
        item.child_id = ""
        _done(own, item)
    else:
        _again(own, fact.key, item, event)


# --- the output and the end ----------------------------------------------------------------------------


def _noted(
    state: State,
    fact: ItemsListed
    | ItemsCheckpoint
    | ItemsForecast
    | ChildMessaged
    | ChildCancelled
    | BudgetSet
    | SessionUpdated
    | UserResume
    | BreakerClosed,
    event: Event,
) -> None:
    own = items_state(state)
    match fact:
        case ItemsListed():
            own.list_ended, own.list_problem = True, fact.problem
        case ItemsCheckpoint():
            own.unwritten.clear()
            own.rewrite, own.written = False, True
            own.lines, own.size, own.sha256 = fact.lines, fact.size, fact.sha256
        case ItemsForecast():
            own.forecast = fact
        case ChildMessaged() if fact.child_id in own.works:
            work = own.works[fact.child_id]
            work.waits, work.finished_seq = False, 0
        case ChildCancelled():
            own.lost = [each for each in own.lost if each != fact.child_id]
        case BudgetSet() | SessionUpdated() | UserResume():
            own.raised_seq = event.seq
        case BreakerClosed() if fact.breaker == QUARANTINE:
            own.accepted = own.quarantined
        case _:
            return


def _reduced(state: State, fact: ItemsReduced, event: Event) -> None:
    own = items_state(state)
    own.reduced = fact
    own.spend(fact.cost_pico if fact.child_id else 0)
    if fact.child_id:
        _over(state, own, fact.child_id)


class ItemsKind(Kind[State]):
    """Kind of sessions that run over a list; they call no model."""

    name = "items"
    met_word = "done"
    state_type = ItemsState
    sources = ("holdfast.kinds.items.kind", "holdfast.kinds.items.state")
    fold: Mapping[type[Fact], Apply] = {
        ItemsAdded: _added,
        ItemsListed: _noted,
        ItemsRemoved: _removed,
        ItemsRetried: _retried,
        ItemStarted: _started,
        ItemEnded: _ended,
        ItemFailed: _failed,
        ItemQuarantined: _quarantined,
        ItemAudited: _audited,
        ItemsCheckpoint: _noted,
        ItemsForecast: _noted,
        ItemsReduced: _reduced,
        ChildFinished: _reported,
        ChildMessaged: _noted,
        ChildCancelled: _noted,
        BudgetSet: _noted,
        SessionUpdated: _noted,
        UserResume: _noted,
        BreakerClosed: _noted,
    }

    def began(self, created: SessionCreated) -> msgspec.Struct:
        """Return the state of a run whose list is empty."""
        return ItemsState()

    def met(self, state: State) -> tuple[int, int] | None:
        """Return how many items have a result, and how many there are."""
        own = items_state(state)
        return own.done, len(own.items)

    def queue(self, state: State) -> tuple[str, ...]:
        """Return the progress bar, with the expected rest."""
        own = items_state(state)
        filled = BAR * (own.done + own.quarantined) // max(1, len(own.items))
        parts = [f"{own.done} of {len(own.items)} items"]
        if own.quarantined:
            parts.append(f"{own.quarantined} quarantined")
        if expected := rest(own):
            parts.append(expected)
        return (f"[{'#' * filled:-<{BAR}}] {', '.join(parts)}",)


KIND = ItemsKind()
