"""Planners and judges: what they are shown, and what of theirs counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.mission import (
    Contract,
    CriterionChecked,
    MissionPlanned,
    MissionPolicy,
    PlannerOpened,
    PlanRefused,
    Task,
)
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import (
    FindingNoted,
    JudgeOpened,
    RepoMerged,
    TaskHandedIn,
    TaskInspected,
    TaskRefused,
    TaskStarted,
)
from holdfast.facts.tool import ToolResult
from holdfast.kinds.mission.acts.open_roles import open_role
from holdfast.kinds.mission.conductor import plans
from holdfast.kinds.mission.conductor.actions import OpenRole
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.kinds.mission.plan import plan_problems, read_plan
from holdfast.kinds.mission.role.submissions import read_verdict
from holdfast.repo.repository import Commit
from holdfast.session.actions import Record
from tests.brain.mission_stage import CONTRACT, FILES, MissionStage
from tests.brain.stage import turn

pytestmark = pytest.mark.anyio

CHANGED = {**FILES, "src/app/text.py": b"def shout(text):\n    return text.upper()\n"}
DEFINED = "src/app/text.py:1: def shout(text):"
UPPER = "src/app/text.py:2: return text.upper()"
SECRET = "trust me, it is perfect"


async def judged(turns: list[dict[str, Any]], outcome: str = "pass") -> tuple[MissionStage, Commit, int]:
    """A mission whose task `text` was handed in and checked, and has a judge; the position of that check."""
    stage = MissionStage({"judge text": turns})
    made = stage.repository.seed(CHANGED, ref="refs/heads/holdfast/demo/text")
    shift = await stage.open()
    checked = CriterionChecked(
        verification_id="ver_1",
        tree=made.tree,
        criteria=("shout",),
        outcome=outcome,  # type: ignore[arg-type]
        runs=1,
        command="true",
        output="1 passed in 0.01s",
    )
    before: list[Fact] = [
        TaskStarted(task_id="text", child_id="ses_x", attempt=1, base=stage.base.commit, ref="r"),
        TaskHandedIn(task_id="text", child_id="ses_x", status="done", commit=made.commit, tree=made.tree, notes=SECRET),
        FindingNoted(task_id="text", child_id="ses_x", text=SECRET),
        TaskRefused(task_id="text", child_id="ses_x", kind="judge", issues=(SECRET,)),
    ]
    await shift.fact(*before)
    (event,) = await shift.fact(checked)
    shift.decided_at = shift.state.seq
    action = OpenRole(
        "judge",
        1,
        made.commit,
        task_id="text",
        base=stage.base.commit,
        tree=made.tree,
        criteria=("shout", "tone"),
    )
    await open_role(shift, action)
    await stage.store.release(shift.lease)
    return stage, made, event.seq


def verdict(decision: str, *criteria: tuple[str, bool, list[str], str], **more: Any) -> tuple[str, dict[str, Any]]:
    """A call that hands in a verdict."""
    each = [{"criterion": n, "passes": p, "evidence": e, "issue": i} for n, p, e, i in criteria]
    return "submit_verdict", {"decision": decision, "criteria": each, **more}


async def test_a_judge_sees_contract_difference_and_results_and_nothing_that_a_worker_said() -> None:
    stage, made, seq = await judged([])
    child_id = await stage.named("judge text")
    (fact,) = await stage.facts(SessionCreated, child_id)
    assert "shout is loud" in fact.goal
    assert "it sounds friendly" in fact.goal
    assert "+    return text.upper()" in fact.goal
    assert f"[shout] pass (event {seq})" in fact.goal
    assert "1 passed in 0.01s" in fact.goal
    assert SECRET not in fact.goal
    assert SECRET not in str(fact)
    assert dict(stage.folders[Path(fact.workspace.path)]) == CHANGED
    (told,) = await stage.facts(JudgeOpened)
    assert (told.child_id, told.tree, told.criteria, told.task_id) == (child_id, made.tree, ("shout", "tone"), "text")
    assert fact.agent.tools == ("bash", "read", "glob", "grep", "submit_verdict")


async def test_a_verdict_counts_when_each_criterion_has_evidence_that_is_there() -> None:
    right = verdict("pass", ("shout", True, ["event 9"], ""), ("tone", True, [UPPER], ""))
    stage, _, seq = await judged([turn("", right)])
    assert seq == 9
    await stage.wake("judge text")
    (report,) = [each for each in await stage.facts(ChildFinished) if each.child_id != "ses_x"]
    assert report.status == "done"
    shift = await stage.hold()
    found = read_verdict(of_mission(shift.state), report, of_mission(shift.state).tasks["text"])
    assert (found.decision, found.refused) == ("pass", "")
    assert [each.passes for each in found.criteria] == [True, True]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (verdict("pass", ("shout", True, ["event 9"], "")), "tone has no verdict"),
        (verdict("pass", ("shout", True, ["event 9"], ""), ("tone", True, [], "")), "tone has no evidence"),
        (
            verdict("pass", ("shout", True, ["event 2"], ""), ("tone", True, [DEFINED], "")),
            "event 2 is not a result",
        ),
        (
            verdict("pass", ("shout", True, ["event 9"], ""), ("tone", True, ["src/app/none.py:1"], "")),
            "there is no file src/app/none.py",
        ),
        (
            verdict("pass", ("shout", True, ["event 9"], ""), ("tone", True, ["src/app/text.py:99"], "")),
            "no line 99",
        ),
        (
            verdict("fail", ("shout", True, ["event 9"], ""), ("tone", False, ["src/app/text.py:1"], "")),
            "fails without an issue",
        ),
        (
            verdict("pass", ("shout", True, ["event 9"], ""), ("tone", False, ["src/app/text.py:1"], "it is rude")),
            "The decision is pass, and tone fails",
        ),
        (verdict("escalate"), "needs a `reason`"),
    ],
)
async def test_a_verdict_that_cannot_count_is_refused_in_words(said: tuple[str, dict[str, Any]], words: str) -> None:
    stage, _, _ = await judged([turn("", said)] * 9)
    await stage.store.find(await stage.named("judge text"))
    await _once(stage, "judge text")
    first, *_ = await stage.facts(ToolResult, await stage.named("judge text"))
    assert first.outcome == "error"
    assert words in first.content


async def test_a_pass_of_what_failed_is_refused_by_the_brain_and_again_by_the_mission() -> None:
    both = verdict("pass", ("shout", True, ["event 9"], ""), ("tone", True, [DEFINED], ""))
    stage, _, _ = await judged([turn("", both)] * 9, outcome="fail")
    await _once(stage, "judge text")
    first, *_ = await stage.facts(ToolResult, await stage.named("judge text"))
    assert "the outcome was fail" in first.content
    shift = await stage.hold()
    slipped = ChildFinished(child_id=await stage.named("judge text"), status="done", submitted=both[1])
    found = read_verdict(of_mission(shift.state), slipped, of_mission(shift.state).tasks["text"])
    assert "the outcome was fail" in found.refused


async def test_what_a_judge_ran_is_evidence_and_what_it_did_not_run_is_none() -> None:
    look = ("bash", {"command": "python -m app hello"})
    asked = ("shout", True, ["event 9"], "")
    invented = verdict("pass", asked, ("tone", True, ["$ python -m app bye => HELLO"], ""))
    stage, _, _ = await judged([turn("", look), turn("", invented)])
    await _once(stage, "judge text")
    ran, refused, *_ = await stage.facts(ToolResult, await stage.named("judge text"))
    assert "you did not run `python -m app bye`" in refused.content
    seen = verdict("pass", asked, ("tone", True, [f"$ python -m app hello => {ran.content}"], ""))
    stage, _, _ = await judged([turn("", look), turn("", seen)])
    await stage.wake("judge text")
    _, accepted = await stage.facts(ToolResult, await stage.named("judge text"))
    assert accepted.outcome == "ok", accepted.content


@pytest.mark.parametrize("status", ["failed", "cancelled", "parked"])
async def test_a_judge_that_ends_otherwise_never_means_pass(status: str) -> None:
    stage, _, _ = await judged([])
    shift = await stage.hold()
    said = verdict("pass", ("shout", True, ["event 9"], ""), ("tone", True, [DEFINED], ""))[1]
    child_id = await stage.named("judge text")
    report = ChildFinished(child_id=child_id, status=status, submitted=said)  # type: ignore[arg-type]
    found = read_verdict(of_mission(shift.state), report, of_mission(shift.state).tasks["text"])
    assert found.refused
    silent = read_verdict(
        of_mission(shift.state), ChildFinished(child_id=child_id, status="done"), of_mission(shift.state).tasks["text"]
    )
    assert silent.refused == "its judge handed in nothing"


async def _once(stage: MissionStage, name: str) -> None:
    """Wake a role until it rests: nine times the same is refused nine times, and then it falls silent."""
    stage.scripts[name] = [*stage.scripts[name][:2], *([turn("I give up")] * 4)]
    outcome = await stage.wake(name)
    assert outcome.ended is not None
    assert outcome.ended.status == "failed"


# --- planners ------------------------------------------------------------------------------------

PLAN = [
    {"id": "a", "title": "adding", "criteria": ["add"], "scope": ["src/app/core.py"]},
    {"id": "b", "title": "shouting", "criteria": ["shout", "tone"], "scope": ["src/app/text.py"], "depends": ["a"]},
]


async def planned(turns: list[dict[str, Any]], contract: Contract = CONTRACT) -> MissionStage:
    """A mission without a plan that has opened a planner."""
    stage = MissionStage({"planner": turns}, contract=contract, policy=MissionPolicy(hooks=False))
    shift = await stage.open(plan=False)
    await open_role(shift, OpenRole("planner", 1, stage.base.commit, base=stage.base.commit))
    await stage.store.release(shift.lease)
    return stage


async def test_a_planner_is_shown_contract_files_and_rules_of_plans() -> None:
    stage = await planned([])
    child_id = await stage.named("planner")
    (fact,) = await stage.facts(SessionCreated, child_id)
    assert "[tone] open: it sounds friendly" in fact.goal
    assert "src/app/core.py" in fact.goal
    assert "submit_plan" in fact.agent.tools
    assert "write" not in fact.agent.tools
    (told,) = await stage.facts(PlannerOpened)
    assert (told.child_id, told.round, told.attempt) == (child_id, 0, 1)


async def test_a_plan_that_leaves_a_criterion_out_comes_back_and_a_whole_one_is_handed_in() -> None:
    short = ("submit_plan", {"tasks": PLAN[:1]})
    whole = ("submit_plan", {"tasks": PLAN, "note": "in this order"})
    stage = await planned([turn("", short), turn("", whole)])
    await stage.wake("planner")
    first, second = await stage.facts(ToolResult, await stage.named("planner"))
    assert first.outcome == "error"
    assert "No task has the criterion shout" in first.content
    assert second.outcome == "ok"
    (report,) = await stage.facts(ChildFinished)
    shift = await stage.hold()
    tasks, dropped, note = read_plan(report.submitted)
    assert plan_problems(tasks, of_mission(shift.state), "", dropped) == ()
    assert tasks[1] == Task("b", "shouting", ("shout", "tone"), ("src/app/text.py",), ("a",))
    assert note == "in this order"


async def test_a_planner_whose_plans_cannot_be_worked_by_is_stopped_after_three() -> None:
    short = ("submit_plan", {"tasks": PLAN[:1]})
    stage = await planned([turn("", short)] * 9)
    await stage.wake("planner")
    results = await stage.facts(ToolResult, await stage.named("planner"))
    assert [each.outcome for each in results] == ["error", "error", "ok"]
    (report,) = await stage.facts(ChildFinished)
    shift = await stage.hold()
    action = plans.step(shift.state, of_mission(shift.state))
    assert isinstance(action, Record)
    refused, made = action.facts
    assert isinstance(refused, PlanRefused)
    assert "No task has the criterion shout" in refused.problems[0]
    assert isinstance(made, MissionPlanned)
    assert {name for task in made.tasks for name in task.criteria} >= {"add", "shout", "tone"}
    assert report.status == "done"


async def test_fields_that_nobody_knows_are_named_and_dropped() -> None:
    whole = ("submit_plan", {"tasks": [each | {"priority": 1} for each in PLAN], "why": "so"})
    stage = await planned([turn("", whole)])
    await stage.wake("planner")
    (result,) = await stage.facts(ToolResult, await stage.named("planner"))
    assert result.outcome == "ok"
    assert "`why` is no field and was left out" in result.content


async def test_a_judge_of_the_main_branch_sees_what_nobody_asked_for_in_all_that_was_merged() -> None:
    stage, made, _ = await judged([])
    shift = await stage.hold()
    extra = "src/app/more.py: a new module that no criterion asks for"
    await shift.fact(
        TaskHandedIn(task_id="text", child_id="ses_x", status="done", commit=made.commit, tree=made.tree),
        TaskInspected(task_id="text", tree=made.tree, files=("src/app/more.py",), unasked=(extra,)),
    )
    shift.decided_at = shift.state.seq
    whole = OpenRole("judge", 1, made.commit, base=stage.base.commit, tree=made.tree, criteria=("tone",))
    assert extra not in await _told(stage, shift, whole), "it is not merged"
    merged = RepoMerged(batch=1, ref="r", commit=made.commit, tree=made.tree, onto=stage.base.commit, tasks=("text",))
    await shift.fact(merged)
    shift.decided_at = shift.state.seq
    assert extra in await _told(stage, shift, msgspec.structs.replace(whole, attempt=2))


async def _told(stage: MissionStage, shift: Shift, action: OpenRole) -> str:
    """What the child that this opens is told."""
    await open_role(shift, action)
    opened = (await stage.facts(JudgeOpened))[-1]
    (created,) = await stage.facts(SessionCreated, opened.child_id)
    return str(created.goal)
