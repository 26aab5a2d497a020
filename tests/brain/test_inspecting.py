"""A mission holds what is handed in against its base, asks about what may be right, and keeps the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.brain.shift import Shift
from holdfast.errors import RepositoryUnfit
from holdfast.facts.mission import Check, Criterion
from holdfast.facts.people import ApprovalDecided, ApprovalRequested, ApprovalSuperseded, Verdict
from holdfast.facts.task import CheckProbed, RatchetViolated, TaskHandedIn, TaskInspected, TaskStarted
from holdfast.kinds.mission.acts import inspecting
from holdfast.kinds.mission.check import proofs
from holdfast.kinds.mission.conductor.actions import Inspect, MissionAction, Project
from holdfast.kinds.mission.conductor.decide import decide
from holdfast.kinds.mission.conductor.tasks import inspection
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.session.actions import Action, End, Record
from tests.brain.mission_stage import CONTRACT, FILES, TASKS, MissionStage

TEST = "tests/test_core.py"
WRONG = FILES[TEST] + b"\n\ndef test_more():\n    assert add(2, 2) == 4\n"
EDITED = FILES[TEST].replace(b"== 3", b"== 4")


async def handed_in(
    stage: MissionStage, shift: Shift, files: Mapping[str, bytes], *deviations: str, task: str = "core"
) -> Inspect:
    """A worker's tree as it was handed in, and the inspection that the conductor names."""
    ref = f"refs/heads/holdfast/demo/{task}"
    stage.repository.refs[ref] = stage.base.commit
    made = stage.repository.seed({**FILES, **files}, ref=ref)
    started = TaskStarted(task_id=task, child_id="ses_w", attempt=1, base=stage.base.commit, ref=ref)
    handed = TaskHandedIn(
        task_id=task,
        child_id="ses_w",
        status="done",
        commit=made.commit,
        tree=made.tree,
        deviations=deviations,
    )
    await shift.fact(started, handed)
    return Inspect(inspection(of_mission(shift.state).tasks[task]), task)


def decided(shift: Shift) -> Action | MissionAction:
    """What the conductor names, once its documents are written."""
    action = decide(shift.state, 0)
    return decide(shift.state, 0, ran=frozenset({action.effect})) if isinstance(action, Project) else action


async def facts(stage: MissionStage, kind: type) -> list[object]:
    return [event.fact for event in await stage.events() if type(event.fact) is kind]


async def answer(shift: Shift, verdict: Verdict) -> None:
    (ask,) = [each for each in shift.state.asks.values() if each.verdict is None]
    fact = ApprovalDecided(item_id=ask.item_id, verdict=verdict, digest=ask.action_digest)
    await shift.post(f"item:{ask.item_id}", fact)


async def test_a_tree_without_fault_goes_on_to_its_checks() -> None:
    stage = MissionStage()
    shift = await stage.open()
    body = b"def add(a, b):\n    return a + b\n"
    action = await handed_in(stage, shift, {"src/app/core.py": body, TEST: WRONG})
    await inspecting.inspect(shift, action)
    (found,) = await facts(stage, TaskInspected)
    assert isinstance(found, TaskInspected)
    assert (found.files, found.violations, found.unasked) == (("src/app/core.py", TEST), (), ())
    assert found.lines > 0
    assert await facts(stage, RatchetViolated) == []
    assert of_mission(shift.state).tasks["core"].status == "inspected"


async def test_a_tampered_tree_is_a_violation_that_is_told_once() -> None:
    stage = MissionStage()
    shift = await stage.open()
    action = await handed_in(stage, shift, {TEST: EDITED, "sitecustomize.py": b"import os\n"})
    await inspecting.inspect(shift, action)
    await inspecting.inspect(shift, action)  # another conductor, after a crash
    (found,) = await facts(stage, RatchetViolated)
    assert isinstance(found, RatchetViolated)
    assert [(each.rule, each.path) for each in found.violations] == [
        ("planted", "sitecustomize.py"),
        ("test_edited", TEST),
    ]
    assert len(await facts(stage, TaskInspected)) == 1
    assert of_mission(shift.state).tasks["core"].status == "handed_in"
    assert of_mission(shift.state).tasks["core"].violations


async def test_leaving_the_scope_is_refused_and_no_violation_of_the_ratchet() -> None:
    stage = MissionStage()
    shift = await stage.open()
    await inspecting.inspect(shift, await handed_in(stage, shift, {"src/app/text.py": b"x = 1\n"}))
    (found,) = await facts(stage, TaskInspected)
    assert isinstance(found, TaskInspected)
    assert [each.rule for each in found.violations] == ["scope"]
    assert await facts(stage, RatchetViolated) == []


async def test_a_declared_change_is_asked_about_and_allowed_to_the_byte() -> None:
    stage = MissionStage()
    shift = await stage.open()
    action = await handed_in(stage, shift, {TEST: EDITED}, f"{TEST}: it expected 3 and the issue says 4")
    await inspecting.inspect(shift, action)
    await inspecting.inspect(shift, action)
    (item,) = await facts(stage, ApprovalRequested)  # asked once
    assert isinstance(item, ApprovalRequested)
    assert item.kind == "change"
    assert "assert add(1, 2) == 4" in item.action  # the exact change
    assert await facts(stage, TaskInspected) == []
    await answer(shift, "approve")
    await inspecting.inspect(shift, action)
    (found,) = await facts(stage, TaskInspected)
    assert isinstance(found, TaskInspected)
    assert found.violations == ()
    assert list(found.allowed) == [TEST]
    assert of_mission(shift.state).allowed == found.allowed
    assert of_mission(shift.state).tasks["core"].status == "inspected"

    # The same content in another task is allowed already; another content is not.
    again = await handed_in(stage, shift, {TEST: EDITED}, task="text")
    await inspecting.inspect(shift, again)
    assert of_mission(shift.state).tasks["text"].status == "inspected"
    assert len(await facts(stage, ApprovalRequested)) == 1
    other = await handed_in(stage, shift, {TEST: EDITED.replace(b"4", b"5")}, task="core")
    await inspecting.inspect(shift, other)
    assert len(await facts(stage, RatchetViolated)) == 1


async def test_a_denied_change_is_refused_and_not_asked_about_again() -> None:
    stage = MissionStage()
    shift = await stage.open()
    why = f"{TEST} is wrong"
    action = await handed_in(stage, shift, {TEST: EDITED}, why)
    await inspecting.inspect(shift, action)
    await answer(shift, "deny")
    await inspecting.inspect(shift, action)
    assert len(await facts(stage, RatchetViolated)) == 1
    more = {TEST: EDITED, "src/app/core.py": b"def add(a, b):\n    return a + b\n"}
    await inspecting.inspect(shift, await handed_in(stage, shift, more, why))
    assert len(await facts(stage, RatchetViolated)) == 2
    assert len(await facts(stage, ApprovalRequested)) == 1


async def test_what_is_not_declared_or_beyond_approval_is_not_asked_about() -> None:
    stage = MissionStage(contract=msgspec.structs.replace(MissionStage().contract, source="feature_list.json"))
    shift = await stage.open()
    for files, deviations in (
        ({TEST: EDITED}, ()),
        ({TEST: EDITED}, ("I changed a test",)),
        ({"feature_list.json": b"[]"}, ("feature_list.json is done",)),
        ({TEST: EDITED, "src/app/text.py": b"x = 1\n"}, (f"{TEST} was wrong",)),  # and it left its scope
    ):
        await inspecting.inspect(shift, await handed_in(stage, shift, files, *deviations))
    assert await facts(stage, ApprovalRequested) == []
    assert len(await facts(stage, RatchetViolated)) == 4


async def test_the_conductor_waits_for_the_answer_and_closes_what_is_not_wanted_any_more() -> None:
    stage = MissionStage()
    shift = await stage.open(TASKS[0])
    mission = of_mission(shift.state)
    await shift.fact(
        *(CheckProbed(name, "t", "d", "yes", "no", "impossible", "base") for name in proofs.unmeasured(mission))
    )
    action = await handed_in(stage, shift, {TEST: EDITED}, f"{TEST} is wrong")
    assert decided(shift) == action
    await inspecting.inspect(shift, action)
    waits = decided(shift)
    assert isinstance(waits, End)
    assert (waits.fact.status, waits.fact.reason) == ("parked", "person")
    await handed_in(stage, shift, {})  # its worker handed in something else meanwhile
    closes = decided(shift)
    assert isinstance(closes, Record)
    assert [type(fact) for fact in closes.facts] == [ApprovalSuperseded]
    await shift.fact(*closes.facts)
    assert decided(shift) != closes


async def test_a_tree_that_is_too_large_is_held_against_what_its_checks_run() -> None:
    """Only parts of it are read; what a script runs is known all the same."""
    item = msgspec.structs.replace(CONTRACT.items[0], criteria=(Criterion("add", "", Check("sh check.sh")),))
    stage = MissionStage(contract=msgspec.structs.replace(CONTRACT, items=(item, CONTRACT.items[1])))
    base = {**FILES, "check.sh": b"python verify.py\n", "verify.py": b"exit(1)\n"}
    stage.base = stage.repository.seed(base)
    shift = await stage.open()
    whole = stage.repository.files

    async def files(commit: str, paths: Sequence[str] = ()) -> dict[str, bytes]:
        if not paths:
            raise RepositoryUnfit("too large")
        return await whole(commit, paths)

    stage.repository.files = files  # type: ignore[method-assign]
    await inspecting.inspect(shift, await handed_in(stage, shift, {**base, "verify.py": b"exit(0)\n"}))
    (found,) = await stage.facts(TaskInspected)
    assert [each.rule for each in found.violations if each.path == "verify.py"] == ["check_script"]
