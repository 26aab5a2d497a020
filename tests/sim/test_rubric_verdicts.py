"""Whole missions whose criteria are for judges alone: what bad verdicts and later merges lead to."""

from __future__ import annotations

import pytest

from holdfast.kinds.mission.acts import merging
from holdfast.sim.missions import scene as mission_scene
from holdfast.sim.missions.run import MissionResult, run_mission_seed
from holdfast.sim.missions.scene import JUDGE_FAULTS, WORKER_FAULTS, Scene


@pytest.fixture(params=[2, pytest.param(20, marks=pytest.mark.faults)])
def count(request: pytest.FixtureRequest) -> int:
    """How many missions of each kind are lived through."""
    return int(request.param)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How often each fault occurs, in worlds where each criterion but the guard is for a judge."""
    chosen = dict.fromkeys((*WORKER_FAULTS, *JUDGE_FAULTS), 0.0)
    monkeypatch.setattr(mission_scene, "RUBRIC_SHARE", 1.0)
    monkeypatch.setattr(Scene, "_rates", lambda self, chance: chosen)
    return chosen


def lived(count: int, *, disturbed: bool) -> list[MissionResult]:
    """Missions with enough money; `disturbed` ones change each other's files, and people commit meanwhile."""
    seeds = (seed for seed in range(1_000) if _fits(Scene(seed), disturbed=disturbed))
    return [run_mission_seed(next(seeds)) for _ in range(count)]


def _fits(scene: Scene, *, disturbed: bool) -> bool:
    kind = scene.loose and scene.policy.judge == "per_task" if disturbed else not scene.follows
    return kind and not scene.half


def done(results: list[MissionResult]) -> list[MissionResult]:
    """Those that ended as done; none of them violates a rule of the simulator."""
    assert [each.violations for each in results if each.violations] == []
    return [each for each in results if each.rest.startswith("done")]


@pytest.mark.parametrize("fault", ["contradicts", "empty", "silent", "crash"])
def test_no_mission_is_done_by_a_verdict_that_cannot_count(rates: dict[str, float], fault: str, count: int) -> None:
    rates[fault] = 1.0
    assert done(lived(count, disturbed=False)) == []


def test_a_quotation_of_what_is_not_there_makes_no_mission_done(rates: dict[str, float], count: int) -> None:
    rates |= {"invents": 1.0, "wrong_body": 1.0}
    results = lived(count, disturbed=False)
    done(results)
    assert sum(each.false_accepts for each in results) == 0


def test_right_work_with_right_judges_is_done(rates: dict[str, float], count: int) -> None:
    assert len(done(lived(count, disturbed=False))) == count


def test_what_a_later_merge_broke_is_not_done(
    rates: dict[str, float], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates["regress"] = 1.0
    results = lived(count, disturbed=True)
    done(results)
    assert sum(each.broken_later for each in results) == 0

    async def nothing(*_: object) -> dict[str, tuple[str, ...]]:
        return {}

    monkeypatch.setattr(merging, "_touched", nothing)
    assert (
        sum(each.broken_later > 0 and each.rest.startswith("done") for each in lived(count, disturbed=True))
        >= count // 4
    )
