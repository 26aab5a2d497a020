"""Flaky checks: run again, weighed against the main line, learned, and put before a person."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from holdfast.brain.shift import Shift
from holdfast.facts.mission import (
    Check,
    Contract,
    ContractAmended,
    Criterion,
    CriterionChecked,
    FlakeNoted,
    Item,
    MissionPolicy,
)
from holdfast.facts.people import ApprovalDecided, ApprovalRequested
from holdfast.facts.task import RepoMerged
from holdfast.hands.fake.calls import ROOT, Files
from holdfast.kinds.mission.check import flakes, proofs
from holdfast.session.rows import item_key
from tests.brain.merge_stage import MergeStage, checked, state_of, task, verdicts

pytestmark = pytest.mark.anyio

FILES = {"a.txt": b"todo\n"}
POLICY = MissionPolicy(hooks=False, judge="off", confirm_runs=1)


@dataclass
class Moody:
    """Checks that fail by a script of their own: one list of exit statuses for each word of a command."""

    moods: dict[str, Callable[[], bool]] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    commands: int = 0

    def __call__(self, command: str, files: Files) -> tuple[int, str]:
        self.commands += 1
        bad = []
        main = files.get(f"{ROOT}/a.txt") == b"todo\n"
        for name in command.split()[1:]:
            self.runs[name] = self.runs.get(name, 0) + 1
            fails = self.moods.get(f"main:{name}" if main else name)
            broken = f"broken {name}".encode() in files.get(f"{ROOT}/broken.txt", b"")
            if broken or (fails is not None and fails()):
                bad.append(name)
        return (1, "".join(f"FAILED {name}\n" for name in bad)) if bad else (0, "")


def script(*fails: bool) -> Callable[[], bool]:
    """Fails as the script says, then passes."""
    left = list(fails)
    return lambda: left.pop(0) if left else False


def moody(
    moods: dict[str, Callable[[], bool]], *names: str, policy: MissionPolicy = POLICY
) -> tuple[MergeStage, Moody]:
    checks = Moody(moods)
    many = tuple(Item(name, "", criteria=(Criterion(name, "", Check("t", (name,))),)) for name in names)
    return MergeStage(Contract("g", many), FILES, checks=checks, policy=policy), checks


async def passed_on_main(stage: MergeStage, shift: Shift, *names: str) -> None:
    mission = state_of(shift)
    merged = RepoMerged(
        batch=0, ref=mission.ref, commit=mission.main, tree=mission.main_tree, onto=mission.main, passed=names
    )
    await shift.fact(merged)


async def test_a_check_that_fails_every_time_is_red() -> None:
    stage, checks = moody({"a": lambda: True}, "a", "b")
    shift = await stage.begin(task("t", "a"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert await verdicts(stage) == {"a": "fail", "b": "pass"}
    assert checks.runs["a"] == 1 + 1 + POLICY.flake_reruns
    assert not await stage.facts(FlakeNoted)


async def test_a_flake_is_noted_and_counts_by_its_passing_run() -> None:
    stage, _ = moody({"a": script(True, True)}, "a", "b")
    shift = await stage.begin(task("t", "a"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert await verdicts(stage) == {"a": "pass", "b": "pass"}
    (noted,) = await stage.facts(FlakeNoted)
    assert (noted.criterion, noted.failures) == ("a", 1)
    (fact, _) = await stage.facts(CriterionChecked)
    assert (fact.criteria, fact.flaky, fact.runs) == (("a",), 1, 4)


async def test_a_flake_among_many_is_learned_from_what_the_run_said() -> None:
    """All its parts pass on the same tree, so something was flaky; the next time it is apart from the others."""
    names = [f"n{number}" for number in range(20)]
    stage, checks = moody({"n7": script(True)}, *names)
    shift = await stage.begin(task("t", "n0"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert set((await verdicts(stage)).values()) == {"pass"}
    (noted,) = await stage.facts(FlakeNoted)
    assert noted.criterion == "n7"
    commands = checks.commands
    await checked(stage, shift, await stage.branch({"a.txt": b"y\n"}))
    assert checks.commands == commands + 2


async def test_a_new_check_that_mostly_fails_is_red() -> None:
    stage, _ = moody({"a": script(True, True, True, False, True, True, True)}, "a")
    shift = await stage.begin(task("t", "a"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    (fact,) = await stage.facts(CriterionChecked)
    assert (fact.outcome, fact.runs, fact.flaky) == ("fail", 7, 6)


async def test_what_fails_on_the_main_line_too_is_the_check_s_own() -> None:
    """It failed four times of four; the main line says that it is flaky, so it gets more runs."""
    stage, checks = moody({"a": script(True, True, True, True), "main:a": script(True)}, "a")
    shift = await stage.begin(task("t", "a"))
    await passed_on_main(stage, shift, "a")
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert await verdicts(stage) == {"a": "pass"}
    assert {fact.tree for fact in await stage.facts(FlakeNoted)} == {
        state_of(shift).main_tree,
        next(iter(await stage.facts(CriterionChecked))).tree,
    }
    assert checks.runs["a"] == 6


async def test_a_branch_that_makes_a_check_unreliable_is_red() -> None:
    stage, _ = moody({"a": script(True, True, False, True, True, True, True)}, "a")
    shift = await stage.begin(task("t", "a"))
    await passed_on_main(stage, shift, "a")
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    (fact,) = await stage.facts(CriterionChecked)
    assert (fact.outcome, fact.flaky) == ("fail", 6)


async def test_no_flake_hides_a_regression() -> None:
    """A criterion that is known to be flaky and is broken for good stays red after every run that it gets."""
    stage, checks = moody({}, "a")
    shift = await stage.begin(task("t", "a"))
    await shift.fact(FlakeNoted(criterion="a", tree="T", runs=4, failures=1))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n", "broken.txt": b"broken a\n"}))
    (fact,) = await stage.facts(CriterionChecked)
    assert (fact.outcome, fact.runs) == ("fail", flakes.patience(POLICY.flake_reruns))
    assert checks.runs["a"] == fact.runs


async def test_a_person_decides_about_quarantine() -> None:
    stage, _ = moody({"a": script(True)}, "a", "b")
    shift = await stage.begin(task("t", "a"))
    for _ in range(flakes.PROPOSE_AFTER - 1):
        await shift.fact(FlakeNoted(criterion="a", tree="T", runs=4, failures=1))
    assert not await stage.facts(ApprovalRequested)
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}), "a")
    await checked(stage, shift, await stage.branch({"a.txt": b"y\n"}), "b")
    (item,) = await stage.facts(ApprovalRequested)
    assert item.kind == "flake"
    assert not flakes.quarantined(shift.state)
    await shift.post(item_key(item.item_id), ApprovalDecided(item_id=item.item_id, verdict="approve"))
    (amended,) = flakes.quarantined(shift.state)
    assert isinstance(amended, ContractAmended)
    assert (amended.weakened, amended.item_id) == (("a",), item.item_id)
    await shift.fact(amended)
    assert set(state_of(shift).contract.criteria()) == {"b"}
    assert not flakes.quarantined(shift.state)


@pytest.mark.parametrize("seed", range(3))
async def test_a_moody_suite_loses_no_good_branch_and_admits_no_bad_one(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(40)]
    unreliable = chance.sample(names, 4)
    moods = {name: lambda: chance.random() < 0.1 for name in unreliable}
    stage, checks = moody({**moods, **{f"main:{name}": mood for name, mood in moods.items()}}, *names)
    shift = await stage.begin(*(task(f"t{number}", names[number]) for number in range(12)))
    bad = {"t3": "n30", "t8": unreliable[0]}
    for number in range(12):
        name = f"t{number}"
        files: dict[str, bytes | None] = {f"w{number}.txt": b"x\n", "a.txt": b"x\n"}
        if name in bad:
            files["broken.txt"] = f"broken {bad[name]}\n".encode()
        await stage.queue(shift, name, await stage.branch(files, words=name))
    await passed_on_main(stage, shift, *names)
    await stage.drain(shift)
    merged = {name for name, each in state_of(shift).tasks.items() if each.status == "merged"}
    assert merged == {f"t{number}" for number in range(12)} - set(bad)
    assert checks.commands


# --- what never passed before --------------------------------------------------------------------

OFTEN = MissionPolicy(hooks=False, judge="off", confirm_runs=3)


async def test_a_first_green_is_confirmed() -> None:
    stage, checks = moody({}, "a", "b", policy=OFTEN)
    shift = await stage.begin(task("t", "a"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert await verdicts(stage) == {"a": "pass", "b": "pass"}
    assert checks.runs == {"a": 3, "b": 3}
    await checked(stage, shift, await stage.branch({"a.txt": b"y\n"}), effect="again")
    assert checks.runs == {"a": 4, "b": 4}


@pytest.mark.parametrize("fails", [(False, True), (False, False, True), (True,)])
async def test_what_passes_only_sometimes_is_red_at_first(fails: tuple[bool, ...]) -> None:
    """Alone or beside one that is steady, whichever run fails."""
    stage, _ = moody({"a": script(*fails, False, True, False, True)}, "a", "b", policy=OFTEN)
    shift = await stage.begin(task("t", "a"))
    await checked(stage, shift, await stage.branch({"a.txt": b"x\n"}))
    assert await verdicts(stage) == {"a": "fail", "b": "pass"}
    red = next(each for each in await stage.facts(CriterionChecked) if each.outcome == "fail")
    assert red.note.startswith(proofs.SOMETIMES)
    assert "a" in state_of(shift).flakes
