"""What a judge's verdict rests on, which merges make it no longer known, and what follows from that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.brain.shift import Shift
from holdfast.facts.mission import Contract, Criterion, Item, MissionFinished, MissionPolicy, ReplanAsked
from holdfast.facts.task import Judged, JudgeOpened, RepoMerged, TaskJudged
from holdfast.kinds.mission.acts import verifying
from holdfast.kinds.mission.conductor import ending, merges
from holdfast.kinds.mission.conductor.actions import EscalateMission, Look, OpenRole
from holdfast.session.actions import Record
from tests.brain.merge_stage import MergeStage, criterion, state_of, task
from tests.repo.repositories import made

pytestmark = pytest.mark.anyio

FILES = {"a.txt": b"todo\n", "b.txt": b"todo\n", "notes.txt": b"dear reader\n", "docs/x.txt": b"x\n"}
QUOTE = "notes.txt:1: dear reader"
RUN = "$ cat notes.txt => dear reader"


@pytest.fixture(params=["memory", "git"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """A folder with a repository as people have it, or none for one in memory."""
    if request.param == "memory":
        return None
    made(tmp_path / "repo", FILES)
    return tmp_path


def staged(real: Path | None, paths: tuple[str, ...] = ()) -> MergeStage:
    """Two items that a check tells of, the first with a rubric line as well."""
    first = Item("a", "a", criteria=(criterion("a", "a.txt", "done"), Criterion("tone", "it is kind")), paths=paths)
    second = Item("b", "b", criteria=(criterion("b", "b.txt", "done"),))
    contract = Contract("words", (first, second), ("tests/**",))
    policy = MissionPolicy(hooks=False, judge="per_task", documents=False)
    return MergeStage(contract, FILES, policy=policy, real=real)


async def accepted(stage: MergeStage, *evidence: str) -> Shift:
    """The mission after the first task was merged, whose judge gave this evidence."""
    shift = await stage.begin(task("a", "a", "tone"), task("b", "b"))
    work = await stage.branch({"a.txt": b"done\n"}, words="a")
    await stage.queue(shift, "a", work)
    judged = (Judged("a", True, ("event 1",)), Judged("tone", True, evidence))
    await shift.fact(
        JudgeOpened(child_id="ses_j", tree=work.tree, criteria=("a", "tone"), attempt=1, task_id="a"),
        TaskJudged(child_id="ses_j", tree=work.tree, decision="pass", criteria=judged, task_id="a"),
    )
    await stage.queue(shift, "a", work)
    await stage.drain(shift)
    assert set(state_of(shift).passed) == {"a", "tone"}, "its own change is what the judge looked at"
    return shift


async def merged(stage: MergeStage, shift: Shift, files: dict[str, bytes | None]) -> None:
    """The second task is merged, with these changes; the checks are proven there."""
    await stage.queue(shift, "b", await stage.branch({"b.txt": b"done\n", **files}, words="b"))
    await stage.drain(shift)
    last = merges.last_proof(state_of(shift))
    if last is not None:
        await verifying.verify(shift, last)


@pytest.mark.parametrize(
    ("paths", "evidence", "change", "known"),
    [
        ((), QUOTE, "notes.txt", False),
        ((), QUOTE, "docs/x.txt", True),
        (("docs/**",), QUOTE, "docs/x.txt", False),
        (("docs/**",), QUOTE, "other.txt", True),
        ((), RUN, "other.txt", False),
        (("notes.txt",), RUN, "other.txt", True),
        (("notes.txt",), RUN, "notes.txt", False),
    ],
    ids=["quoted", "not quoted", "path", "no path", "a run", "a run with paths", "a run and its path"],
)
async def test_a_verdict_rests_on_what_its_judge_looked_at(
    real: Path | None, paths: tuple[str, ...], evidence: str, change: str, known: bool
) -> None:
    stage = staged(real, paths)
    shift = await accepted(stage, evidence)
    await merged(stage, shift, {change: b"rude words\n"})
    mission = state_of(shift)
    assert ("tone" in mission.passed, "tone" in mission.stale) == (known, not known)
    last = (await stage.facts(RepoMerged))[-1]
    assert (change in last.touched.get("tone", ())) == (not known)
    action = ending.step(shift.state, mission, 0, frozenset())
    if known:
        assert isinstance(action, Look), "nothing is left but the end"
    else:
        assert isinstance(action, OpenRole)
        assert (action.kind, action.task_id, action.criteria) == ("judge", "", ("tone",))
        assert action.tree == mission.main_tree


async def test_a_file_that_goes_is_a_change_too(real: Path | None) -> None:
    stage = staged(real)
    shift = await accepted(stage, QUOTE)
    await merged(stage, shift, {"notes.txt": None})
    assert set(state_of(shift).stale) == {"tone"}


async def judged_again(shift: Shift, decision: str, *, passes: bool, **more: str) -> None:
    """One more judge, of the main branch, and what it says."""
    tree, issue = state_of(shift).main_tree, "" if passes else "it is rude now"
    said = () if decision == "escalate" else (Judged("tone", passes, (QUOTE,), issue),)
    tries = state_of(shift).final_tries + 1
    await shift.fact(
        JudgeOpened(child_id=f"ses_{tries}", tree=tree, criteria=("tone",), attempt=tries),
        TaskJudged(child_id=f"ses_{tries}", tree=tree, decision=decision, criteria=said, **more),  # type: ignore[arg-type]
    )


async def test_what_is_judged_again_is_met_or_not() -> None:
    for passes in (True, False):
        stage = staged(None)
        shift = await accepted(stage, QUOTE)
        await merged(stage, shift, {"notes.txt": b"rude words\n"})
        await judged_again(shift, "pass" if passes else "fail", passes=passes)
        mission = state_of(shift)
        assert (mission.stale, "tone" in mission.passed) == ({}, passes)
        action = ending.step(shift.state, mission, 0, frozenset())
        if passes:
            assert isinstance(action, Look)
            action = ending.step(shift.state, mission, 0, frozenset({action.effect}))
            assert isinstance(action, Record)
            (finished,) = action.facts
            assert isinstance(finished, MissionFinished)
            assert (finished.status, set(finished.met)) == ("done", {"a", "b", "tone"})
        else:
            assert isinstance(action, OpenRole)
            assert action.kind == "planner", "what is not met any more is planned for"
            assert "tone was met, and is not after a later merge: it is rude now" in mission.failures


async def test_judges_that_give_no_verdict_never_end_it_as_done() -> None:
    stage = staged(None)
    shift = await accepted(stage, QUOTE)
    await merged(stage, shift, {"notes.txt": b"rude words\n"})
    for _ in range(state_of(shift).policy.judge_tries):
        assert isinstance(ending.step(shift.state, state_of(shift), 0, frozenset()), OpenRole)
        await judged_again(shift, "pass", passes=True, refused="tone: notes.txt:1 does not say 'dear reader'")
    action = ending.step(shift.state, state_of(shift), 0, frozenset())
    assert isinstance(action, EscalateMission)
    assert "no valid verdict" in action.why
    await shift.fact(ReplanAsked(reason="look once more"))
    assert isinstance(ending.step(shift.state, state_of(shift), 0, frozenset()), OpenRole), "a person said to go on"


async def test_a_judge_may_want_a_person_to_look() -> None:
    stage = staged(None)
    shift = await accepted(stage, QUOTE)
    await merged(stage, shift, {"notes.txt": b"rude words\n"})
    await judged_again(shift, "escalate", passes=False, reason="who is the reader?")
    action = ending.step(shift.state, state_of(shift), 0, frozenset())
    assert isinstance(action, EscalateMission)
    assert "who is the reader?" in action.why
