"""The fold of what became of sessions that this one opened (S4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.child import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.codec import Event
from holdfast.session.context.tokens import estimate
from holdfast.session.fold import egress as fold_egress
from holdfast.session.state import Child, State


def _opened(state: State, fact: ChildOpened, event: Event) -> None:
    state.children[fact.child_id] = Child(fact.child_id, fact.call_id, event.seq, fact.name)


def _messaged(state: State, fact: ChildMessaged, event: Event) -> None:
    child = state.children.get(fact.child_id)
    if child is not None:  # it has something to do again
        child.status = None


def _cancelled(state: State, fact: ChildCancelled, event: Event) -> None:
    child = state.children.get(fact.child_id)
    if child is not None:
        child.cancelled = True


def _finished(state: State, fact: ChildFinished, event: Event) -> None:
    state.stirred()
    child = state.children.get(fact.child_id)
    if child is None:
        return
    child.status, child.finished_seq = fact.status, event.seq
    if fact.untrusted:
        fold_egress.read(state, event.seq, "a child reported that had read what strangers may have written")
    if not child.cancelled:  # whoever cancelled it need not be told
        state.posted(event.seq, estimate(fact.summary) + estimate(fact.detail))


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    ChildOpened: _opened,
    ChildMessaged: _messaged,
    ChildCancelled: _cancelled,
    ChildFinished: _finished,
}
