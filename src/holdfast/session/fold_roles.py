"""The fold of what a role of a mission hands in, and of what the harness commits of its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import HookRan, WorkSubmitted
from holdfast.facts.repo import RepoCommitted
from holdfast.session.state import State
from holdfast.session.tokens import estimate


def _submitted(state: State, fact: WorkSubmitted, event: Event) -> None:
    state.submitted_seq, state.silent, state.sent_back = event.seq, 0, {}


def _committed(state: State, fact: RepoCommitted, event: Event) -> None:
    if state.mission is None:
        state.committed, state.committed_seq = (fact.commit, fact.tree), event.seq


def _hook(state: State, fact: HookRan, event: Event) -> None:
    state.mutated_seq = event.seq
    if fact.event == "SessionStart" and state.hands is not None:
        state.hooked = state.hands.hands_id
    if fact.event == "Stop" and fact.blocked:
        state.sent_back.setdefault(fact.call_id, event.seq)
    if fact.blocked or fact.told:
        state.posted(event.seq, estimate(fact.content))


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    WorkSubmitted: _submitted,
    RepoCommitted: _committed,
    HookRan: _hook,
}
