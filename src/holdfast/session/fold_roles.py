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

NOTES = "/notes"
"""How the branch of a mission's documents ends."""

HAND_IN_EVENT = "HandIn"
"""How the harness names its own word to a role that stopped and handed nothing in."""


def _submitted(state: State, fact: WorkSubmitted, event: Event) -> None:
    state.submitted_seq, state.silent, state.refused, state.sent_back = event.seq, 0, 0, {}


def _committed(state: State, fact: RepoCommitted, event: Event) -> None:
    if state.mission is None:
        state.committed, state.committed_seq = (fact.commit, fact.tree), event.seq
    elif fact.ref.endswith(NOTES):
        state.mission.noted_seq = fact.through_seq


def _hook(state: State, fact: HookRan, event: Event) -> None:
    if fact.event == HAND_IN_EVENT:  # nothing ran
        state.silent += 1
        state.posted(event.seq, estimate(fact.content))
        return
    state.mutated_seq = event.seq
    if fact.event == "SessionStart" and state.hands is not None:
        state.hooked = state.hands.hands_id
    if fact.blocked and fact.event in ("Stop", "SubagentStop"):
        state.sent_back.setdefault(fact.call_id, event.seq)
    if fact.blocked or fact.told:
        state.posted(event.seq, estimate(fact.content))


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    WorkSubmitted: _submitted,
    RepoCommitted: _committed,
    HookRan: _hook,
}
