"""The conductor in worlds drawn from seeds: what it may never do, and that it always comes to an end."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from holdfast.facts.mission import (
    Contract,
    Criterion,
    CriterionChecked,
    Item,
    MissionOpened,
    MissionPolicy,
    Task,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.task import Judged, JudgeOpened, RepoMerged, TaskInspected, TaskJudged
from holdfast.kinds import KINDS
from holdfast.kinds.mission.acts.conducting import EFFECTS
from holdfast.kinds.mission.conductor import ending
from holdfast.kinds.mission.conductor.actions import Effect, EscalateMission, OpenRole, Verify
from holdfast.kinds.mission.conductor.decide import decide
from holdfast.kinds.mission.conductor.merges import unmet_unknown
from holdfast.kinds.mission.fold.state import BEFORE, MissionState, TaskState
from holdfast.session.fold import empty
from tests.mission.world import World

SEEDS = 200


def test_each_effect_of_the_conductor_has_a_function() -> None:
    assert set(EFFECTS) == set(get_args(Effect))


@pytest.mark.parametrize("faults", [0.0, 0.2, 0.35])
def test_done_is_never_said_of_what_is_not(faults: float) -> None:
    stands: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = World(seed, faults=faults)
        status = world.run()
        stands[status] += 1
        mission = world.mission
        if status == "done":
            known = mission.contract.criteria()
            unmet = [n for n, c in known.items() if c.check is not None and n not in world.truth[mission.main_tree]]
            assert not unmet, f"seed {seed}: done, and {unmet} do not pass"
    assert stands["done"] == SEEDS if not faults else stands["done"], stands
    assert set(stands) <= {"done", "failed", "parked person"}, stands


def test_the_main_line_only_gets_better() -> None:
    for seed in range(SEEDS):
        world = World(seed, faults=0.4)
        world.run()
        known = world.mission.contract.criteria()
        best: set[str] = set()
        for tree in world.main_line:
            here = {name for name in world.truth[tree] if known[name].check is not None}
            passed = {name for name in best - world.withdrawn if name in world.mission.passed}
            assert passed <= here, f"seed {seed}: {passed - here} were lost on {tree}"
            best |= here


class LateCheck(World):
    """A check of the former main tree passes while the branch moves for the first time, and the merge breaks it."""

    late = ""

    def _advance(self, passed: tuple[str, ...]) -> None:
        if self.late:
            super()._advance(passed)
            return
        former, merge = self.mission.main_tree, self.mission.merge
        self.late = unmet_unknown(self.mission)[0]
        self.truth[former] |= {self.late}
        self.tell(
            VerificationStarted(verification_id="v", effect=f"{BEFORE}i", tree=former, criteria=(self.late,)),
            CriterionChecked("v", former, (self.late,), "pass", 1),
            VerificationEnded(verification_id="v", effect=f"{BEFORE}i", tree=former),
        )
        meanwhile = decide(self.state, self.state.at_us, frozenset({f"advance:{merge.batch}"}))
        assert not (isinstance(meanwhile, Verify) and meanwhile.tree == merge.tree), (
            "the branch is at that tree already"
        )
        moved = RepoMerged(merge.batch, "r", merge.commit, merge.tree, merge.onto, merge.tasks, passed, merge.base)
        self.tell(moved)
        self.main_line.append(merge.tree)


def test_a_check_that_ends_while_the_main_branch_moves_is_of_its_own_tree() -> None:
    for seed in range(20):
        world = LateCheck(seed, faults=0.0)
        assert world.run() == "done"
        assert world.late in world.mission.passed


def test_nothing_is_tried_more_often_than_the_policy_allows() -> None:
    for seed in range(100):
        policy = MissionPolicy(planner="items", max_iterations=2, max_attempts=2, max_replans=1, judge="per_task")
        world = World(seed, faults=0.9, policy=policy)
        world.run()
        assert world.mission.round <= 1 + world.asked
        for task in world.mission.tasks.values():
            assert task.attempt - task.conflicts <= 2


@pytest.mark.parametrize("replans", [0, 1, 2])
def test_the_user_is_asked_after_as_many_plans_as_the_policy_allows(replans: int) -> None:
    contract = Contract("g", (Item("i", "an item", criteria=(Criterion("r", "it reads well"),)),))
    mission = MissionState(contract, MissionPolicy(max_replans=replans), opened_seq=1, main="c", planned=True)
    for mission.round in range(replans):
        assert isinstance(ending.step(empty("ses_1", KINDS), mission, 0, frozenset()), OpenRole)
    mission.round = replans
    assert isinstance(ending.step(empty("ses_1", KINDS), mission, 0, frozenset()), EscalateMission)


class Idle(World):
    """Workers hand in what was there before, and judges are content with it."""

    def _inspect(self, task_id: str) -> None:
        self.tell(TaskInspected(task_id=task_id, tree=self.mission.tasks[task_id].tree))


@pytest.mark.parametrize("judge", ["per_task", "at_end"])
def test_a_rubric_line_is_not_met_by_changing_nothing(judge: str) -> None:
    policy = MissionPolicy(planner="items", judge=judge, max_replans=1)  # type: ignore[arg-type]
    for seed in range(20):
        world = Idle(seed, faults=0.0, policy=policy)
        assert world.run() != "done", f"seed {seed}"
        assert any(task.refusals.get("empty") for task in world.mission.tasks.values())
        assert World(seed, faults=0.0, policy=policy).run() == "done"


def test_the_last_judge_is_not_asked_where_nothing_was_changed() -> None:
    state = empty("ses_1", KINDS)
    contract = Contract("g", (Item("i", "an item", criteria=(Criterion("r", "it reads well"),)),))
    mission = MissionState(contract, MissionPolicy(judge="at_end"), opened_seq=1, main="c", main_tree="t", planned=True)
    action = ending.step(state, mission, 0, frozenset())
    assert isinstance(action, OpenRole)
    assert action.kind == "planner"
    mission.tasks["t"] = TaskState(Task("t", "a task", ("r",)), "merged", changed=1)
    action = ending.step(state, mission, 0, frozenset())
    assert isinstance(action, OpenRole)
    assert action.kind == "judge"


def test_the_last_judge_speaks_of_the_tree_that_it_looked_at() -> None:
    world = World(3, faults=0.0, policy=MissionPolicy(planner="items", judge="at_end"), items=2)
    met = Judged("i1.r", passes=True, evidence=("a.py:1: x",))
    world.tell(
        MissionOpened(name="m", ref="r", base="c0", tree="t0"),
        JudgeOpened(child_id="ses_2", tree="t0", criteria=("i1.r",), attempt=1),
        TaskJudged(child_id="ses_2", tree="t0", decision="fail", criteria=(met,)),
    )
    assert "i1.r" not in ending.unmet_at_end(world.mission)
    world.mission.main_tree = "t1"
    assert "i1.r" in ending.unmet_at_end(world.mission)
    world.tell(JudgeOpened(child_id="ses_3", tree="t1", criteria=("i1.r",), attempt=1))
    world.tell(TaskJudged(child_id="ses_3", tree="t1", decision="fail", refused="it said nothing"))
    assert "i1.r" in ending.unmet_at_end(world.mission)
