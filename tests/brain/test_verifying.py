"""Verification: clean checkouts with people's own protected files, few runs, flaky checks, verdicts asked for once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from holdfast.environment.fake import FakeEnvironments
from holdfast.facts.mission import (
    Check,
    Contract,
    ContractAmended,
    Criterion,
    CriterionChecked,
    Item,
    Metric,
    MissionPolicy,
    VerificationEnded,
    VerificationStarted,
)
from holdfast.facts.session import Environment
from holdfast.facts.task import RepoMerged
from holdfast.hands.base import ExecRequest
from holdfast.hands.fake.calls import ROOT, Files
from holdfast.kinds.mission.acts.replay import Replayed, replay
from holdfast.kinds.mission.acts.verifying import give_up
from holdfast.repo.repository import Commit
from tests.brain.merge_stage import MergeStage, checked, effect, state_of, task, verdicts
from tests.repo.repositories import made

pytestmark = pytest.mark.anyio

FILES = {"a.txt": b"todo\n", "b.txt": b"done\n", "tests/test_a.py": b"the true test\n", "src/m/__init__.py": b""}
POLICY = MissionPolicy(hooks=False, judge="off", confirm_runs=1)


def contract(*criteria: Criterion, protected: tuple[str, ...] = ("tests/**",)) -> Contract:
    return Contract("g", (Item("i", "all", criteria=criteria),), protected)


def has(name: str, path: str, word: str, **more: object) -> Criterion:
    return Criterion(name, "", Check("has", (f"{path} {word}",), **more))  # type: ignore[arg-type]


async def test_verdicts_stand_between_a_start_and_an_end() -> None:
    stage = MergeStage(contract(has("a", "a.txt", "done"), has("b", "b.txt", "done"), Criterion("tone", "nice")), FILES)
    shift = await stage.begin(task("t", "a"))
    work = await stage.branch({"a.txt": b"done\n"})
    await checked(stage, shift, work)
    (started,) = await stage.facts(VerificationStarted)
    (check,) = await stage.facts(CriterionChecked)
    (ended,) = await stage.facts(VerificationEnded)
    assert started.criteria == ("a", "b", "tone")
    assert started.hands is not None
    assert (check.criteria, check.outcome, check.runs, check.exit_code) == (("a", "b"), "pass", 1, 0)
    assert (check.key, check.command) == (started.key, "has 'a.txt done' 'b.txt done'")
    assert ended.error == ""
    assert not state_of(shift).verifications
    assert not stage.hands.alive()
    assert [str(path) for path in stage.folders if "/made/" in str(path)] == []


async def test_people_own_the_protected_files() -> None:
    """A test that a worker weakened, removed or planted does not count; one that was added does."""
    stage = MergeStage(
        contract(
            has("true", "tests/test_a.py", "true"),
            has("new", "tests/test_new.py", "mine"),
            Criterion("conftest", "", Check("lacks", ("tests/conftest.py skip", "sitecustomize.py exit"))),
            Criterion("shadow", "", Check("lacks", ("src/random.py def",))),
        ),
        FILES,
    )
    shift = await stage.begin(task("t", "true"))
    work = await stage.branch(
        {
            "tests/test_a.py": b"always passes\n",
            "tests/test_new.py": b"mine\n",
            "tests/conftest.py": b"skip all\n",
            "sitecustomize.py": b"exit\n",
            "src/random.py": b"def random(): ...\n",
        }
    )
    await checked(stage, shift, work)
    assert await verdicts(stage) == dict.fromkeys(("true", "new", "conftest", "shadow"), "pass")


async def test_a_removed_test_is_back() -> None:
    stage = MergeStage(contract(has("true", "tests/test_a.py", "true")), FILES)
    shift = await stage.begin(task("t", "true"))
    await checked(stage, shift, await stage.branch({"tests/test_a.py": None}))
    assert await verdicts(stage) == {"true": "pass"}


async def test_what_a_person_allowed_counts() -> None:
    stage = MergeStage(contract(has("mine", "tests/test_a.py", "better")), FILES)
    shift = await stage.begin(task("t", "mine"))
    work = await stage.branch({"tests/test_a.py": b"a better test\n"})
    state_of(shift).allowed["tests/test_a.py"] = "digest"
    await checked(stage, shift, work)
    assert await verdicts(stage) == {"mine": "pass"}


async def test_each_run_has_a_place_of_its_own() -> None:
    """What a run leaves behind is not there for the next one: a check that remembers fails each time."""

    def remembers(command: str, files: Files) -> tuple[int, str]:
        known = f"{ROOT}/memory" in files
        files[f"{ROOT}/memory"] = b"I was here"
        return (0, "") if known else (1, "")

    stage = MergeStage(contract(Criterion("once", "", Check("remember"))), FILES, checks=remembers)
    shift = await stage.begin(task("t", "once"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    (check,) = await stage.facts(CriterionChecked)
    assert (check.outcome, check.runs, check.flaky) == ("fail", 4, 0)


async def test_what_failed_is_found_in_few_runs() -> None:
    names = [f"n{number}" for number in range(32)]
    calls: list[str] = []

    def one_bad(command: str, files: Files) -> tuple[int, str]:
        calls.append(command)
        return (1, "boom\n") if "n21" in command.split() else (0, "")

    many = contract(*(Criterion(name, "", Check("t", (name,))) for name in names))
    stage = MergeStage(many, FILES, checks=one_bad)
    shift = await stage.begin(task("t", "n0"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    found = await verdicts(stage)
    assert [name for name in names if found[name] != "pass"] == ["n21"]
    assert len(calls) <= 2 * 5 + 1 + POLICY.flake_reruns
    assert sorted(found) == sorted(names)


async def test_hints_in_the_output_save_runs() -> None:
    names = [f"n{number}" for number in range(32)]
    calls: list[str] = []

    def one_bad(command: str, files: Files) -> tuple[int, str]:
        calls.append(command)
        return (1, "FAILED n21 - assert\n") if "n21" in command.split() else (0, "")

    many = contract(*(Criterion(name, "", Check("t", (name,))) for name in names))
    stage = MergeStage(many, FILES, checks=one_bad)
    shift = await stage.begin(task("t", "n0"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert len(calls) == 3 + POLICY.flake_reruns
    assert (await verdicts(stage))["n21"] == "fail"


@pytest.mark.parametrize(("said", "outcome"), [("slow\n91.5\n", "pass"), ("85\n", "fail"), ("no number\n", "error")])
async def test_a_metric_is_read_from_the_last_line(said: str, outcome: str) -> None:
    check = Check("measure", metric=Metric(90, 0.5, "at_least"))
    stage = MergeStage(contract(Criterion("m", "", check)), FILES, checks=lambda command, files: (0, said))
    shift = await stage.begin(task("t", "m"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    (fact,) = await stage.facts(CriterionChecked)
    assert fact.outcome == outcome
    assert fact.value == {"pass": 91.5, "fail": 85.0, "error": None}[outcome]


async def test_a_check_that_hangs_is_a_timeout() -> None:
    def forever(call_id: str, request: ExecRequest) -> tuple[float, float]:
        return (0.0, 3600.0) if "hang" in request.input["command"] else (0.0, 0.0)

    stage = MergeStage(
        contract(Criterion("h", "", Check("hang", timeout_s=0.05)), Criterion("ok", "", Check("true"))),
        FILES,
        pace=forever,
    )
    shift = await stage.begin(task("t", "h"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert await verdicts(stage) == {"h": "timeout", "ok": "pass"}
    (hung, _) = await stage.facts(CriterionChecked)
    assert hung.runs == 2


async def test_a_command_that_is_not_there_is_an_error() -> None:
    stage = MergeStage(
        contract(Criterion("x", "", Check("nosuch"))), FILES, checks=lambda command, files: (127, "what?")
    )
    shift = await stage.begin(task("t", "x"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    (fact,) = await stage.facts(CriterionChecked)
    assert (fact.outcome, fact.runs, fact.exit_code, fact.output) == ("error", 1, 127, "what?")


async def test_output_is_kept_to_its_end() -> None:
    long = "".join(f"line {number}\n" for number in range(5_000))
    stage = MergeStage(contract(Criterion("x", "", Check("talk"))), FILES, checks=lambda command, files: (0, long))
    shift = await stage.begin(task("t", "x"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    (fact,) = await stage.facts(CriterionChecked)
    assert 1_500 < len(fact.output) <= 2_000
    assert fact.output.startswith("line ")


# --- asked for once ------------------------------------------------------------------------------


async def test_a_recorded_verdict_is_never_asked_for_again() -> None:
    stage = MergeStage(contract(has("a", "a.txt", "done"), has("b", "b.txt", "done", timeout_s=5)), FILES)
    shift = await stage.begin(task("t", "a"))
    work = await stage.branch({"a.txt": b"done\n"})
    await checked(stage, shift, work, "a")
    await checked(stage, shift, work, "a", "b", effect="other")
    facts = await stage.facts(CriterionChecked)
    assert [fact.criteria for fact in facts] == [("a",), ("b",)]
    await checked(stage, shift, work, "a", "b", effect="another")
    assert len(await stage.facts(CriterionChecked)) == 2
    assert len(await stage.facts(VerificationEnded)) == 3


async def test_another_contract_is_another_question() -> None:
    stage = MergeStage(contract(has("a", "a.txt", "done")), FILES)
    shift = await stage.begin(task("t", "a"))
    work = await stage.branch({"a.txt": b"done\n"})
    await checked(stage, shift, work)
    await shift.fact(ContractAmended(contract=stage.contract, digest="another", author="a person"))
    await checked(stage, shift, work, effect="again")
    one, two = await stage.facts(CriterionChecked)
    assert one.key != two.key


async def test_lost_hands_are_no_verdict() -> None:
    lost: list[str] = []
    stage = MergeStage(contract(has("a", "a.txt", "done")), FILES, pace=lambda call_id, request: (0.05, 0.05))
    shift = await stage.begin(task("t", "a"))
    work = await stage.branch({"a.txt": b"done\n"})

    async def lose() -> None:
        await stage.stage.until("verification.started")
        (hands,) = stage.hands.alive()
        lost.append(hands)
        stage.hands.lose(hands)

    async with anyio.create_task_group() as group:
        group.start_soon(lose)
        await checked(stage, shift, work)
    (fact,) = await stage.facts(CriterionChecked)
    assert (fact.outcome, fact.runs) == ("pass", 1)
    assert lost


async def test_a_verification_that_is_given_up_leaves_nothing() -> None:
    stage = MergeStage(contract(has("a", "a.txt", "done")), FILES, pace=lambda call_id, request: (3600.0, 0.0))
    shift = await stage.begin(task("t", "a"))
    work = await stage.branch({"a.txt": b"done\n"})
    async with anyio.create_task_group() as group:
        group.start_soon(checked, stage, shift, work)
        await stage.stage.until("verification.started")
        group.cancel_scope.cancel()
    assert not stage.hands.alive()
    await give_up(shift)
    (ended,) = await stage.facts(VerificationEnded)
    assert ended.error == "it was given up"
    assert not state_of(shift).verifications


async def test_all_checkouts_stand_on_one_environment(tmp_path: Path) -> None:
    """It is set up once, in hands of its own; its digest is in the key. One that cannot be made is no verdict."""
    made(tmp_path / "repo", FILES)
    commands: list[str] = []

    def tells(command: str, files: Files) -> tuple[int, str]:
        commands.append(command)
        return (1, "no such package") if command == "cannot" else (0, "")

    given = contract(Criterion("a", "", Check("one")), Criterion("b", "", Check("two")))
    environments = FakeEnvironments()
    keys: list[str] = []
    errors: list[str] = []
    for setup in ("make deps", "make more", "cannot"):
        stage = MergeStage(given, real=tmp_path, checks=tells, environment=Environment(setup=(setup,)))
        stage.doors = replace(stage.doors, environments=environments)
        shift = await stage.begin(task("t", "a"))
        for number in range(2):
            await checked(stage, shift, await stage.branch({"a.txt": f"{setup} {number}".encode()}), effect=str(number))
        keys += [fact.key for fact in await stage.facts(CriterionChecked)]
        assert commands.count(setup) == (2 if setup == "cannot" else 1)
        errors += [fact.error for fact in await stage.facts(VerificationEnded) if fact.error]
    assert len(keys) == 8
    assert len(set(keys)) == 4
    assert len(errors) == 2
    assert all("no such package" in error for error in errors)


# --- replay --------------------------------------------------------------------------------------


async def replayed(stage: MergeStage) -> list[Replayed]:
    return [each async for each in replay(stage.doors, stage.mission_id)]


async def test_replay_finds_every_commit_green_or_says_which_is_not() -> None:
    names = ("a", "b", "c")
    criteria = [has(name, f"{name}.txt", "done") for name in names]
    stage = MergeStage(contract(*criteria), {f"{name}.txt": b"todo\n" for name in names}, policy=POLICY)
    shift = await stage.begin(*(task(name, name) for name in names))
    for name in names:
        await stage.queue(shift, name, await stage.branch({f"{name}.txt": b"done\n"}, words=name))
        await stage.drain(shift)
    found = await replayed(stage)
    assert [(each.criteria, each.failed, each.known) for each in found] == [
        (0, (), True), (1, (), True), (2, (), True), (3, (), True),
    ]  # fmt: skip
    mission = state_of(shift)
    # Somebody broke it behind the harness's back, and claimed that it passes.
    broken = await stage.branch({"b.txt": b"todo\n"}, Commit(mission.main, mission.main_tree), words="broken")
    assert await stage.line.point(mission.ref, broken.commit, mission.main)
    assert (await replayed(stage))[-1].known is False
    lie = RepoMerged(batch=9, ref=mission.ref, commit=broken.commit, tree=broken.tree, onto=mission.main, passed=names)
    await shift.fact(lie)
    assert (await replayed(stage))[-1].failed == ("b",)


def test_the_little_language() -> None:
    files = Files()
    files[f"{ROOT}/x"] = b"yes"
    assert effect("has 'x yes'", files) == (0, "1 passed\n")
    assert effect("has 'x no'", files)[0] == 1
    assert effect("lacks 'x no' 'y z'", files)[0] == 0
