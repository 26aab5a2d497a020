"""What the folds of a mission's families share."""

from __future__ import annotations

from holdfast.facts.codec import Event
from holdfast.kinds.mission.fold.state import MissionState, TaskState, TaskStatus

FAILURES_KEPT = 60


def turn(task: TaskState, status: TaskStatus, event: Event) -> None:
    """A task is somewhere else now."""
    task.status, task.since_seq = status, event.seq


def note_failure(mission: MissionState, words: str) -> None:
    """Keep what was tried, for the next plan and for a person."""
    mission.failures.append(words[:500])
    del mission.failures[:-FAILURES_KEPT]
