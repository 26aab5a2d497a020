"""The branch with a mission's documents, in memory and in a repository as people have them; lines that are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.brain.shift import Shift
from holdfast.errors import Fenced
from holdfast.facts.mission import LessonApplied, LessonProposed, MissionPolicy, RoleKind
from holdfast.facts.people import ApprovalDecided, ApprovalRequested, Verdict
from holdfast.facts.session import SessionCreated
from holdfast.facts.task import RepoCommitted, TaskRefused
from holdfast.kinds.mission.acts import documents as documents_act
from holdfast.kinds.mission.acts.open_roles import open_role
from holdfast.kinds.mission.conductor.actions import OpenRole
from holdfast.kinds.mission.fold.state import of_mission
from tests.brain.merge_stage import MergeStage, contract_of, criterion, task
from tests.brain.mission_stage import MissionStage
from tests.repo.repositories import made

FILES = {"AGENTS.md": b"# Rules\n\nBe kind.\n", "a.txt": b"todo\n", "b.txt": b"todo\n"}
NOTES = "refs/heads/holdfast/demo/notes"
MAIN = "refs/heads/holdfast/demo/main"


@pytest.fixture(params=["memory", "git"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """A folder with a repository as people have it, or none for one in memory."""
    if request.param == "memory":
        return None
    made(tmp_path / "repo", FILES)
    return tmp_path


def staged(real: Path | None, **more: object) -> MergeStage:
    """A mission with two tasks."""
    policy = MissionPolicy(hooks=False, judge="off", **more)  # type: ignore[arg-type]
    contract = contract_of([criterion(name, f"{name}.txt", "done") for name in "ab"])
    return MergeStage(contract, FILES, policy=policy, real=real)


async def begun(stage: MergeStage) -> Shift:
    """It has a plan."""
    return await stage.begin(*(task(name, name) for name in "ab"))


async def fail_twice(shift: Shift) -> None:
    """Two workers are sent back for the same check."""
    for name in "ab":
        issues = ("a is not met: a.txt says done",)
        await shift.fact(TaskRefused(task_id=name, child_id=f"ses_{name}", kind="checks", issues=issues))


async def answer(stage: MergeStage, shift: Shift, verdict: Verdict) -> None:
    """A person says what they think of the latest line."""
    item = (await stage.facts(ApprovalRequested))[-1]
    said = ApprovalDecided(item_id=item.item_id, verdict=verdict)
    await shift.doors.log.post(shift.post_to(stage.mission_id, f"item:{item.item_id}", said, actor="user:eva"))
    await shift.refresh()


async def on_branch(stage: MergeStage) -> dict[str, str]:
    """The documents as they stand in the repository."""
    found = await stage.line.resolve(NOTES)
    assert found is not None
    return {path: data.decode() for path, data in (await stage.line.files(found.commit)).items()}


async def test_documents_stand_on_a_branch_of_their_own_and_the_main_line_is_let_be(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage)
    before = await stage.line.resolve(MAIN)
    await documents_act.project(shift)
    files = await on_branch(stage)
    assert sorted(files) == ["AGENTS.md", "lab-notes.md", "plan.md", "progress.txt"]
    assert files["AGENTS.md"].startswith("# Rules\n\nBe kind.\n\n<!-- holdfast:plan -->\nPlan 0 of the mission demo")
    assert "0/2 criteria pass" in files["progress.txt"]
    assert "| b | planned |" in files["plan.md"]
    assert await stage.line.resolve(MAIN) == before
    (committed,) = await stage.facts(RepoCommitted)
    assert (committed.ref, committed.parent) == (NOTES, "")


async def test_nothing_new_writes_nothing_and_what_is_new_follows_what_was(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage)
    await documents_act.project(shift)
    head = shift.state.seq
    await documents_act.project(shift)
    assert shift.state.seq == head
    await shift.fact(TaskRefused(task_id="a", child_id="ses_a", kind="checks", issues=("a is not met: x",)))
    await documents_act.project(shift)
    first, second = await stage.facts(RepoCommitted)
    assert second.parent == first.commit
    assert "was sent back (checks): a is not met: x" in (await on_branch(stage))["lab-notes.md"]


async def test_a_brain_that_was_taken_over_in_the_middle_leaves_nothing_unsaid(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage)
    after = await stage.hold()
    with pytest.raises(Fenced):
        await documents_act.project(shift)
    found = await stage.line.resolve(NOTES)
    assert found is not None, "the branch was written, and nobody recorded it"
    assert await stage.facts(RepoCommitted) == []
    await documents_act.project(after)
    (committed,) = await stage.facts(RepoCommitted)
    latest = await stage.line.resolve(NOTES)
    assert latest is not None
    assert latest.commit == committed.commit == found.commit


async def test_what_a_person_commits_there_is_followed(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage)
    await documents_act.project(shift)
    mine = await stage.line.resolve(NOTES)
    assert mine is not None
    theirs = await stage.line.write({"note.txt": b"by hand"}, [mine.commit], "a person's", 5)
    assert await stage.line.point(NOTES, theirs.commit, mine.commit)
    await documents_act.project(shift)
    assert (await stage.facts(RepoCommitted))[-1].parent == theirs.commit
    assert "note.txt" not in await on_branch(stage)


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_a_line_waits_for_a_person(real: Path | None, verdict: Verdict) -> None:
    stage = staged(real)
    shift = await begun(stage)
    await fail_twice(shift)
    await documents_act.project(shift)
    (line,) = await stage.facts(LessonProposed)
    (item,) = await stage.facts(ApprovalRequested)
    assert (line.item_id, item.kind, item.action) == (item.item_id, "lesson", line.line)
    assert item.evidence == line.evidence
    assert "`has a.txt done`" in line.line
    assert "Run `has" not in (await on_branch(stage))["AGENTS.md"]
    assert f"(proposed; because of events {line.evidence[0]}, " in (await on_branch(stage))["lab-notes.md"]
    await answer(stage, shift, verdict)
    await documents_act.project(shift)
    await documents_act.project(shift)
    applied = await stage.facts(LessonApplied)
    assert [(each.line, each.by) for each in applied] == ([(line.line, "user:eva")] if verdict == "approve" else [])
    assert (line.line in (await on_branch(stage))["AGENTS.md"]) is (verdict == "approve")
    assert len(await stage.facts(LessonProposed)) == 1
    stands = "accepted" if verdict == "approve" else "denied"
    assert f"({stands}; because of" in (await on_branch(stage))["lab-notes.md"]
    if applied:
        agents = (await stage.line.files(applied[0].commit, ["AGENTS.md"]))["AGENTS.md"].decode()
        assert line.line in agents, "it names the commit that has it"
        assert of_mission(shift.state).lessons == [line.line]


async def test_a_policy_takes_lines_at_once(real: Path | None) -> None:
    stage = staged(real, lessons="apply")
    shift = await begun(stage)
    await fail_twice(shift)
    await documents_act.project(shift)
    (line,) = await stage.facts(LessonProposed)
    (applied,) = await stage.facts(LessonApplied)
    assert (applied.line, applied.by) == (line.line, "policy")
    assert await stage.facts(ApprovalRequested) == []
    assert line.line in (await on_branch(stage))["AGENTS.md"]


async def test_without_documents_lines_are_still_proposed_and_taken(real: Path | None) -> None:
    stage = staged(real, lessons="apply", documents=False)
    shift = await begun(stage)
    await fail_twice(shift)
    await documents_act.project(shift)
    assert await stage.line.resolve(NOTES) is None
    assert len(await stage.facts(LessonApplied)) == 1


@pytest.mark.parametrize("kind", ["worker", "judge"])
async def test_who_works_is_given_what_was_learnt_and_who_judges_is_not(kind: RoleKind) -> None:
    """A line may quote a worker, and a judge hears nothing of theirs."""
    stage = MissionStage()
    shift = await stage.open()
    await shift.fact(LessonApplied(line='Run it twice. Found out: "it is moody".', by="user:eva"))
    shift.decided_at = shift.state.seq
    base = stage.base.commit
    await open_role(shift, OpenRole(kind, 1, base, task_id="core", base=base, ref="r", tree=stage.base.tree))
    (child,) = await stage.facts(SessionCreated, await stage.named(f"{kind} core"))
    assert child.rules.startswith("Write short functions.")
    assert ("## Learned in this mission\n\n- Run it twice." in child.rules) is (kind == "worker")
    assert ("moody" in f"{child.rules}{child.goal}") is (kind == "worker")
