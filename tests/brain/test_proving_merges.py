"""Which merges are proven again: those with a product file that was on no proven tree. All in memory."""

from __future__ import annotations

import pytest

from holdfast.brain.shift import Shift
from holdfast.facts.mission import Contract, CriterionChecked, MissionPolicy, VerificationStarted
from holdfast.facts.task import CheckProbed, CheckProved
from holdfast.kinds.mission.acts import verifying
from holdfast.kinds.mission.check import proofs
from holdfast.kinds.mission.conductor import ending, merges
from holdfast.kinds.mission.fold.state import LAST
from holdfast.repo.repository import Commit
from tests.brain.merge_stage import MergeStage, checked, contract_of, criterion, state_of, task

pytestmark = pytest.mark.anyio

FILES = {"a.txt": b"todo\n", "b.txt": b"todo\n", "shared.txt": b"1\n2\n3\n4\n5\n"}


def contract() -> Contract:
    return contract_of([criterion("a", "a.txt", "done"), criterion("b", "b.txt", "done")])


async def work(stage: MergeStage, name: str, more: dict[str, bytes] | None = None) -> Commit:
    return await stage.branch({f"{name}.txt": b"done\n", **(more or {})}, words=name)


async def proven(stage: MergeStage) -> list[tuple[str, str]]:
    """What was proven, and on which tree."""
    return [(each.criterion, each.tree) for each in await stage.facts(CheckProved)]


async def begun(gate: str = "batch") -> tuple[MergeStage, Shift]:
    policy = MissionPolicy(hooks=False, judge="off", confirm_runs=1, gate=gate)  # type: ignore[arg-type]
    stage = MergeStage(contract(), FILES, policy=policy, measured=False)
    return stage, await stage.begin(task("a", "a"), task("b", "b"))


async def test_a_merge_of_proven_trees_is_not_proven_again() -> None:
    stage, shift = await begun()
    trees = {}
    for name in "ab":
        commit = await work(stage, name)
        await checked(stage, shift, commit, name, effect=f"task:{name}")
        await stage.queue(shift, name, commit)
        trees[name] = commit.tree
    assert await proven(stage) == list(trees.items())
    assert [each.hollow for each in await stage.facts(CheckProbed)] == ["base", "base"]
    await stage.drain(shift)
    assert set(state_of(shift).passed) == {"a", "b"}
    assert await proven(stage) == list(trees.items())


async def test_before_the_end_all_is_proven_on_the_last_tree() -> None:
    stage, shift = await begun("each")
    for name in "ab":
        commit = await work(stage, name)
        await checked(stage, shift, commit, name, effect=f"task:{name}")
        await stage.queue(shift, name, commit)
        await stage.drain(shift)
    last = merges.last_proof(state_of(shift))
    assert last is not None
    assert last.criteria == ("a", "b")
    await verifying.verify(shift, last)
    main = state_of(shift).main_tree
    assert (await proven(stage))[-2:] == [("a", main), ("b", main)]
    assert set(state_of(shift).passed) == {"a", "b"}
    assert merges.last_proof(state_of(shift)) is None


async def test_what_the_last_proof_does_not_show_is_not_met() -> None:
    stage, shift = await begun()
    commit = await work(stage, "a")
    await checked(stage, shift, commit, "a", effect="task:a")
    await stage.queue(shift, "a", commit)
    await stage.drain(shift)
    main = state_of(shift).main_tree
    assert set(state_of(shift).passed) == {"a"}
    await shift.fact(VerificationStarted("v", f"{LAST}{main}", main, ("a",)))
    await shift.fact(CriterionChecked("v", main, ("a",), "fail", 1, note=proofs.LOST["hollow"]))
    assert ending.unmet_now(state_of(shift)) == ("a", "b")


async def test_a_file_that_both_sides_changed_is_proven_again() -> None:
    stage, shift = await begun()
    for name, text in (("a", b"one\n2\n3\n4\n5\n"), ("b", b"1\n2\n3\n4\nfive\n")):
        commit = await work(stage, name, {"shared.txt": text})
        await checked(stage, shift, commit, name, effect=f"task:{name}")
        await stage.queue(shift, name, commit)
    await stage.drain(shift)
    main = state_of(shift).main_tree
    assert {each for each, tree in await proven(stage) if tree == main} == {"a", "b"}


async def test_work_that_no_check_proved_is_proven_once_merged() -> None:
    """A task without a check of its own could fool those of others."""
    stage, shift = await begun("each")
    first = await work(stage, "a")
    await checked(stage, shift, first, "a", effect="task:a")
    await stage.queue(shift, "a", first)
    await stage.drain(shift)
    before = await proven(stage)
    await stage.queue(shift, "b", await work(stage, "b"))
    await stage.drain(shift)
    main = state_of(shift).main_tree
    assert set(await proven(stage)) - set(before) == {("a", main), ("b", main)}


async def test_protected_files_make_no_new_product() -> None:
    stage, shift = await begun()
    commit = await stage.branch({"tests/test_new.py": b"x\n"}, words="tests")
    await checked(stage, shift, commit, "a", "b")
    assert await proven(stage) == []
