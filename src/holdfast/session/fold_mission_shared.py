"""What the folds of a mission's families share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.session.state import State
from holdfast.session.state_mission import MissionState, TaskState, TaskStatus

FAILURES_KEPT = 60

Apply = Callable[[State, Any, Event], None]


def for_missions(table: dict[type[Fact], Apply]) -> dict[type[Fact], Apply]:
    """The same, for missions alone: what is of a mission says nothing in another session's log."""
    return {kind: _guarded(apply) for kind, apply in table.items()}


def _guarded(apply: Apply) -> Apply:
    def applied(state: State, fact: Any, event: Event) -> None:
        if state.mission is not None:
            apply(state, fact, event)

    return applied


def of_mission(state: State) -> MissionState:
    """The mission of a state that has one."""
    assert state.mission is not None
    return state.mission


def turn(task: TaskState, status: TaskStatus, event: Event) -> None:
    """A task is somewhere else now."""
    task.status, task.since_seq = status, event.seq


def note_failure(mission: MissionState, words: str) -> None:
    """Keep what was tried, for the next plan and for a person."""
    mission.failures.append(words[:500])
    del mission.failures[:-FAILURES_KEPT]
