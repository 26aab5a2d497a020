"""How a brief says that a criterion is known to hold: proven, judged, not proven able to fail, no longer known."""

from __future__ import annotations

from holdfast.facts.mission import Check, Contract, Criterion, CriterionChecked, Item, Metric, Task
from holdfast.facts.task import Judged, JudgeOpened, RepoMerged, TaskJudged
from holdfast.kinds.mission.brief.brief import brief
from holdfast.kinds.mission.fold.state import Proof, of_mission
from tests.mission.brief_mission import MAIN, World, sha


def test_each_criterion_stands_once_by_how_it_is_known() -> None:
    measure = Criterion("speed", "fast", Check("bench", metric=Metric(0.9)))
    criteria = (
        *(Criterion(name, name, Check("true")) for name in ("shown", "never")),
        Criterion("look", "nice"),
        measure,
    )
    task = Task("T", "t", ("shown", "never", "look", "speed"))
    world = World(Contract("g", (Item("a", "a", criteria=criteria),)), (task,))
    world.works(task)
    world.checks(sha("t-T"), ("shown", "never"))
    world.top.tell(
        JudgeOpened(child_id="j", tree=sha("t-T"), criteria=("look",), attempt=1, task_id="T"),
        TaskJudged(
            child_id="j", tree=sha("t-T"), decision="pass", task_id="T", criteria=(Judged("look", True, ("a.py:1",)),)
        ),
        CriterionChecked(verification_id="v", tree=sha("t-T"), criteria=("speed",), outcome="fail", runs=1, value=0.7),
        RepoMerged(batch=1, ref=MAIN, commit=sha("c"), tree=sha("t-T"), onto=world.main, tasks=("T",),
                   passed=("shown", "never")),
    )  # fmt: skip
    state = world.state()
    of_mission(state).proofs = {"shown": Proof(1, "", ("canary",)), "never": Proof(1, "")}
    of_mission(state).passed.pop("look", None)
    of_mission(state).stale, of_mission(state).curves = {"look": 1}, {"speed": [(1, 0.5), (2, 0.7)]}
    told = brief(world.top.events, state, world.logs)
    lines = {line.kind: [each.text for each in line.examples] for line in told.lines}
    assert (lines["proven"], lines["unproven"], lines["stale"]) == (["shown"], ["never"], ["look"])
    assert "judged" not in lines
    (speed,) = lines["unmet"]
    assert "0.7, wants at least 0.9; values 0.5 → 0.7" in speed
    assert len([text for texts in lines.values() for text in texts if text == "look"]) == 1


def test_a_check_that_was_killed_is_said_to_have_no_exit_status() -> None:
    task = Task("T", "t", ("shown",))
    world = World(Contract("g", (Item("a", "a", criteria=(Criterion("shown", "it works", Check("true")),)),)), (task,))
    world.works(task)
    world.top.tell(CriterionChecked(verification_id="v", tree=sha("t-T"), criteria=("shown",), outcome="error", runs=1))
    told = brief(world.top.events, world.state(), world.logs)
    (unmet,) = [each.text for line in told.lines for each in line.examples if line.kind == "unmet"]
    assert unmet.endswith(": no exit status")
