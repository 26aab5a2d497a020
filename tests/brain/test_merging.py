"""The main line: intents and compare-and-swaps, batches and what is left of red ones, people who go on meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.brain.shift import Shift
from holdfast.errors import RepositoryUnfit
from holdfast.facts.mission import ContractSealed, CriterionChecked, MissionPolicy
from holdfast.facts.task import BatchRefused, MergeStarted, RepoConflicted, RepoMerged, RepoMoved
from holdfast.kinds.mission.acts import merging, verifying
from holdfast.kinds.mission.conductor import merges
from holdfast.kinds.mission.conductor.actions import Advance, Assemble, Look, Open, Verify
from holdfast.kinds.mission.contract.contents import contract_digest
from tests.brain.merge_stage import MergeStage, contract_of, criterion, state_of, task
from tests.repo.repositories import git, made, put

pytestmark = pytest.mark.anyio

MAIN = "refs/heads/holdfast/demo/main"
NAMES = tuple("abcdefgh")
FILES = {**{f"{name}.txt": b"todo\n" for name in NAMES}, "shared.txt": b"calm\n", "tests/t.txt": b"as it was\n"}
QUIET = MissionPolicy(hooks=False, judge="off", batch=8)


@pytest.fixture(params=["memory", "git"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """A folder with a repository as people have it, or none for one in memory."""
    if request.param == "memory":
        return None
    made(tmp_path / "repo", FILES)
    return tmp_path


def staged(real: Path | None, policy: MissionPolicy = QUIET, follow: str = "") -> MergeStage:
    criteria = [criterion(name, f"{name}.txt", "done") for name in NAMES]
    calm = criterion("calm", "shared.txt", "calm", guard=True)
    return MergeStage(contract_of([*criteria, calm]), FILES, policy=policy, real=real, follow=follow)


async def begun(stage: MergeStage, *, bad: str = "", names: tuple[str, ...] = NAMES) -> Shift:
    """All tasks are queued; the `bad` one breaks what held before."""
    shift = await stage.begin(*(task(name, name) for name in names))
    for name in names:
        files: dict[str, bytes | None] = {f"{name}.txt": b"done\n"}
        if name in bad:
            files["shared.txt"] = b"angry\n"
        await stage.queue(shift, name, await stage.branch(files, words=name))
    return shift


async def test_a_mission_begins_once(real: Path | None) -> None:
    stage = staged(real)
    shift = await stage.begin(task("a", "a"))
    await merging.open_mission(shift, Open())
    (sealed,) = await stage.facts(ContractSealed)
    assert sealed.digest == contract_digest(stage.contract)
    assert sealed.criteria == len(NAMES) + 1
    found = await stage.line.resolve(MAIN)
    assert found == stage.base
    assert state_of(shift).main == stage.base.commit


async def test_a_name_that_is_taken_is_refused(real: Path | None) -> None:
    stage = staged(real)
    first = await stage.branch({"a.txt": b"x\n"})
    second = await stage.branch({"a.txt": b"y\n"})
    assert await stage.line.point(MAIN, first.commit, None)
    assert second != first
    with pytest.raises(RepositoryUnfit, match="has a branch holdfast/demo/main already"):
        await stage.begin(task("a", "a"))


async def test_a_green_batch_is_one_step_of_the_main_line(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage)
    await stage.drain(shift)
    merged = await stage.facts(RepoMerged)
    assert [name for fact in merged for name in fact.tasks] == list(NAMES)
    assert set(state_of(shift).passed) == {*NAMES, "calm"}
    head = await stage.line.resolve(MAIN)
    assert head is not None
    assert head.commit == merged[-1].commit
    files = await stage.line.files(head.commit)
    assert all(files[f"{name}.txt"] == b"done\n" for name in NAMES)
    line = await stage.line.history(head.commit, 50)
    assert len(line) == len(merged) + len(await stage.line.history(stage.base.commit, 50))
    checked = await stage.facts(CriterionChecked)
    assert {fact.outcome for fact in checked} == {"pass"}


async def test_a_bad_branch_is_found_and_the_others_are_merged(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage, bad="c")
    await stage.drain(shift)
    tasks = state_of(shift).tasks
    assert {name for name in NAMES if tasks[name].status == "merged"} == set(NAMES) - {"c"}
    assert tasks["c"].refusals == {"regression": 1}
    refused = await stage.facts(BatchRefused)
    assert refused[-1].culprits == ("c",)
    assert refused[-1].failed == ("calm",)
    head = await stage.line.resolve(MAIN)
    assert head is not None
    assert (await stage.line.files(head.commit))["shared.txt"] == b"calm\n"
    # The tree of the last part was seen before, so nothing ran for it.
    trees = [fact.tree for fact in refused]
    assert len(set(trees)) < len(trees)
    assert stage.verified == len({fact.tree for fact in await stage.facts(MergeStarted)})


async def test_the_owner_of_what_fails_is_tried_last(real: Path | None) -> None:
    stage = staged(real)
    shift = await stage.begin(*(task(name, name) for name in "abcd"))
    for name in "abcd":
        await stage.queue(shift, name, await stage.branch({f"{name}.txt": b"done\n"}, words=name))
    await stage.queue(shift, "d", await stage.branch({"d.txt": b"not yet\n"}, words="dd"), attempt=2)
    await stage.drain(shift)
    refused = await stage.facts(BatchRefused)
    assert refused[0].groups == (("a", "b", "c"), ("d",))
    assert [fact.culprits for fact in refused] == [(), ("d",)]
    assert [fact.tasks for fact in await stage.facts(RepoMerged)] == [("a", "b", "c")]


async def test_a_conflict_goes_back_and_the_rest_is_merged(real: Path | None) -> None:
    stage = staged(real)
    shift = await stage.begin(task("a", "a"), task("b", "b"))
    await stage.queue(shift, "a", await stage.branch({"a.txt": b"done\n", "shared.txt": b"calm, a\n"}, words="a"))
    await stage.queue(shift, "b", await stage.branch({"b.txt": b"done\n", "shared.txt": b"calm, b\n"}, words="b"))
    await stage.drain(shift)
    (conflict,) = await stage.facts(RepoConflicted)
    assert (conflict.task_id, conflict.paths) == ("b", ("shared.txt",))
    assert state_of(shift).tasks["a"].status == "merged"
    assert state_of(shift).tasks["b"].status == "planned"


async def test_each_gate_checks_each_branch(real: Path | None) -> None:
    stage = staged(real, MissionPolicy(hooks=False, judge="off", gate="each"))
    shift = await begun(stage, names=("a", "b", "c"))
    await stage.drain(shift)
    assert [fact.tasks for fact in await stage.facts(RepoMerged)] == [("a",), ("b",), ("c",)]


async def test_a_green_branch_follows_the_integration_branch(real: Path | None) -> None:
    stage = staged(real, MissionPolicy(hooks=False, judge="off", gate="green_branch", batch=2))
    shift = await begun(stage, bad="b")
    assert await stage.step(shift)
    (started,) = await stage.facts(MergeStarted)
    assert started.tasks == NAMES
    ahead = await stage.line.resolve("refs/heads/holdfast/demo/next")
    assert ahead is not None
    assert ahead.commit == started.commit
    assert await stage.line.resolve(MAIN) == stage.base
    await stage.drain(shift)
    assert {name for name, each in state_of(shift).tasks.items() if each.status == "merged"} == set(NAMES) - {"b"}


# --- crashes -------------------------------------------------------------------------------------


async def until(stage: MergeStage, shift: Shift, kind: type) -> Advance | Verify | Assemble:
    """Steps of the conductor up to, and without, the next of that kind."""
    for _ in range(100):
        action = merges.step(shift.state, state_of(shift), frozenset())
        if isinstance(action, kind):
            assert isinstance(action, Advance | Verify | Assemble)
            return action
        assert await stage.step(shift)
    raise AssertionError(f"no {kind.__name__}")


async def test_an_intent_is_carried_out_by_whoever_comes_next(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage, names=("a", "b"))
    await until(stage, shift, Advance)
    late = await stage.hold()
    await stage.drain(late)
    assert [fact.tasks for fact in await stage.facts(RepoMerged)] == [("a", "b")]
    assert len(await stage.facts(MergeStarted)) == 1


async def test_a_move_that_was_done_is_not_done_again(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage, names=("a", "b"))
    await until(stage, shift, Advance)
    merge = state_of(shift).merge
    assert merge is not None
    assert await stage.line.point(MAIN, merge.commit, merge.onto)  # and then the process died
    late = await stage.hold()
    await stage.drain(late)
    (merged,) = await stage.facts(RepoMerged)
    assert merged.commit == merge.commit
    assert await stage.line.resolve(MAIN) is not None


async def test_merges_made_again_are_the_same_commits(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage, names=("a", "b", "c"))
    action = await until(stage, shift, Assemble)
    assert isinstance(action, Assemble)
    first = await merging._merged(shift, action, stage.line)  # made, and not recorded: then the process died
    late = await stage.hold()
    await merging.assemble(late, action)
    (started,) = await stage.facts(MergeStarted)
    assert started.commit == first.at.commit


async def test_a_main_line_that_somebody_moved_is_left_alone(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage, names=("a",))
    action = await until(stage, shift, Advance)
    theirs = await stage.branch({"a.txt": b"theirs\n"})
    assert await stage.line.point(MAIN, theirs.commit, stage.base.commit)
    assert isinstance(action, Advance)
    await merging.advance(shift, action)
    (moved,) = await stage.facts(RepoMoved)
    assert (moved.ref, moved.found, moved.followed) == (MAIN, theirs.commit, False)
    await stage.drain(shift)
    assert await stage.line.resolve(MAIN) == theirs
    assert not await stage.facts(RepoMerged)
    assert await stage.line.point(MAIN, stage.base.commit, theirs.commit)  # a person put it back
    await merging.look(shift, Look("look:again"))
    await stage.drain(shift)
    assert [fact.tasks for fact in await stage.facts(RepoMerged)] == [("a",)]


# --- people who go on ----------------------------------------------------------------------------


async def test_people_and_a_mission_on_one_branch(tmp_path: Path) -> None:
    """Twenty commits of a person between the merges of eight branches: all of both are in the end."""
    repo = made(tmp_path / "repo", FILES)
    stage = staged(tmp_path, MissionPolicy(hooks=False, judge="off", gate="each"), follow="refs/heads/main")
    shift = await begun(stage)
    theirs: list[str] = []
    for number in range(20):
        put(repo, {f"people/{number}.txt": b"mine\n", "tests/t.txt": f"edition {number}\n".encode()})
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", f"a person's {number}")
        theirs.append(git(repo, "rev-parse", "HEAD"))
        for _ in range(3):
            await stage.step(shift)
    await merging.look(shift, Look("look:end"))
    await stage.drain(shift)
    mission = state_of(shift)
    assert all(each.status == "merged" for each in mission.tasks.values())
    for commit in theirs:
        git(repo, "merge-base", "--is-ancestor", commit, mission.main)
    assert git(repo, "rev-parse", "refs/heads/main") == theirs[-1]
    assert git(repo, "status", "--porcelain") == ""
    files = await stage.line.files(mission.main)
    assert files["people/19.txt"] == b"mine\n"
    assert files["tests/t.txt"] == b"edition 19\n"
    assert files["h.txt"] == b"done\n"
    assert mission.followed == theirs[-1]
    taken_in = [fact.base for fact in await stage.facts(RepoMerged) if fact.base]
    assert len(taken_in) > 3  # while it went on, not at its end alone


async def test_what_people_did_that_does_not_merge_is_told_and_nothing_is_lost(real: Path | None) -> None:
    stage = staged(real, follow="refs/heads/main")
    shift = await begun(stage, names=("a",))
    await stage.drain(shift)
    head = state_of(shift).main
    theirs = await stage.branch({"a.txt": b"theirs\n"})
    if stage.real is None:
        stage.fake.refs["refs/heads/main"] = theirs.commit
    else:
        git(stage.real / "repo", "update-ref", "refs/heads/main", theirs.commit)
    await merging.look(shift, Look("look"))
    await stage.drain(shift)
    (conflict,) = await stage.facts(RepoConflicted)
    assert (conflict.task_id, conflict.commit, conflict.paths) == ("", theirs.commit, ("a.txt",))
    assert state_of(shift).main == head
    assert "did not merge: a.txt" in state_of(shift).failures[-1]


async def test_a_red_base_is_not_taken_in(real: Path | None) -> None:
    stage = staged(real, follow="refs/heads/main")
    shift = await begun(stage, names=("a",))
    await stage.drain(shift)
    theirs = await stage.branch({"shared.txt": b"angry\n"})
    if stage.real is None:
        stage.fake.refs["refs/heads/main"] = theirs.commit
    else:
        git(stage.real / "repo", "update-ref", "refs/heads/main", theirs.commit)
    await merging.look(shift, Look("look"))
    await stage.drain(shift)
    assert state_of(shift).refused_base == theirs.commit
    assert state_of(shift).followed == stage.base.commit


async def test_verdicts_of_a_merge_are_not_asked_for_twice(real: Path | None) -> None:
    stage = staged(real)
    shift = await begun(stage, names=("a", "b"))
    action = await until(stage, shift, Verify)
    assert isinstance(action, Verify)
    await verifying.verify(shift, action)
    before = len(await stage.facts(CriterionChecked))
    await verifying.verify(await stage.hold(), action)
    assert len(await stage.facts(CriterionChecked)) == before
