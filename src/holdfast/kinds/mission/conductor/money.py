"""Children of a mission that stopped for money or a cap. Pure."""

from __future__ import annotations

from holdfast.kinds.mission.conductor.actions import RaiseChildren
from holdfast.kinds.mission.fold.state import MissionState
from holdfast.session.state import State


def is_short(mission: MissionState, child_id: str) -> bool:
    """Whether a child rests because the mission's money is used up, not its own."""
    report = mission.reports.get(child_id)
    if report is None or report.status != "parked" or report.reason != "budget":
        return False
    own = mission.policy.task_budget_pico
    return own is None or 2 * (report.cost_pico or 0) < own


def short(mission: MissionState) -> list[str]:
    """The children that wait for the mission's money."""
    return [child_id for child_id in mission.reports if is_short(mission, child_id)]


def words(mission: MissionState) -> str:
    """Why the mission rests."""
    waiting = short(mission)
    return f"the budget is used up: {len(waiting)} of its sessions wait for money"


def more(state: State, mission: MissionState) -> RaiseChildren | None:
    """Money was raised after they stopped: they go on."""
    waiting = [name for name in short(mission) if state.children[name].finished_seq < mission.raised_seq]
    return RaiseChildren(tuple(waiting)) if waiting else None
