"""The fold of workspaces that are where the hands are, and of those that had to begin again (S11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsHostFiles, HandsLost, HandsProvisioned, HandsReleased, HandsRestored
from holdfast.facts.session import SessionEventsLost
from holdfast.session.context.notes import note_of
from holdfast.session.context.tokens import estimate
from holdfast.session.fold import egress as fold_egress
from holdfast.session.state import State


def _provisioned(state: State, fact: HandsProvisioned, event: Event) -> None:
    state.hands = fact
    state.hands_known[fact.hands_id] = fact
    state.workspace_with = ""
    state.had_hands = True
    fold_egress.provisioned(state)


def _gone(state: State, fact: HandsLost | HandsReleased, event: Event) -> None:
    """What is lost may still have the workspace; what was given back has brought it back."""
    if state.hands is not None and state.hands.hands_id == fact.hands_id:
        state.hands = None
    known = state.hands_known.get(fact.hands_id)
    if isinstance(fact, HandsReleased):
        state.hands_known.pop(fact.hands_id, None)
        state.workspace_with = "" if state.workspace_with == fact.hands_id else state.workspace_with
    elif known is not None and known.holds_workspace:
        state.workspace_with = fact.hands_id


def _restored(state: State, fact: HandsRestored, event: Event) -> None:
    """The workspace is an earlier one: what was read since counts no more (S18), and the model is told."""
    state.snapshot_seq, state.snapshot_error = event.seq, ""
    state.seen = {}
    state.posted(event.seq, estimate(note_of(fact)))


def _host_files(state: State, fact: HandsHostFiles, event: Event) -> None:
    state.host_files = {**state.host_files, **dict.fromkeys((file.path for file in fact.files), not fact.before)}


def _events_lost(state: State, fact: SessionEventsLost, event: Event) -> None:
    """What a person went on without. Calls that were not dispatched may have been, files may have changed (S18), and
    the hands may know later calls under the ids of calls to come (S8): no call goes to them any more.
    """
    state.stirred()
    state.seen = {}
    for call in state.open_calls():
        call.lost = not call.attempt and not call.problem and call.where != "harness" and call.on_unknown != "retry"
    if state.hands is not None:
        _gone(state, HandsLost(hands_id=state.hands.hands_id, reason=""), event)
    state.posted(event.seq, estimate(note_of(fact)))


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    HandsProvisioned: _provisioned,
    HandsLost: _gone,
    HandsReleased: _gone,
    HandsRestored: _restored,
    HandsHostFiles: _host_files,
    SessionEventsLost: _events_lost,
}
