"""Hidden files are in no checkout of a role; checks that name them are run with them, and nothing of them is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from holdfast.facts.mission import Check, Contract, Criterion, CriterionChecked, Item, MissionPolicy
from holdfast.facts.task import RepoCommitted
from holdfast.globs import matches
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.fake.calls import ROOT, Files
from holdfast.kinds.mission.acts.checkouts import read_only
from holdfast.kinds.mission.acts.open_roles import open_role
from tests.brain.merge_stage import MergeStage, checked, task, verdicts
from tests.brain.mission_stage import CONTRACT, FILES, MissionStage
from tests.brain.test_roles import DONE, WORK, worker
from tests.repo.repositories import made

pytestmark = pytest.mark.anyio

HIDDEN = ("tests/hidden/**",)
SECRET = b"assert add(20, 22) == 42\n"
BASE = {"calc.py": b"def add(a, b):\n    raise KeyError\n", "tests/hidden/test_h.py": SECRET, "tests/test_a.py": b"x\n"}
POLICY = MissionPolicy(hooks=False, judge="off")

TRACE = """
    def test_h():
>       assert add(20, 22) == 42
calc.py:2: in add
calc.py:9: in _own
E       KeyError: 'expected 42'
E       Stolen42: no type of the product
"""


def contract(*criteria: Criterion) -> Contract:
    return Contract("g", (Item("i", "all", criteria=criteria),), ("tests/**",), hidden=HIDDEN)


async def test_only_a_check_that_names_hidden_files_sees_them() -> None:
    seen: dict[str, bool] = {}

    def looks(command: str, files: Files) -> tuple[int, str]:
        seen[command.partition(" -o ")[0]] = f"{ROOT}/tests/hidden/test_h.py" in files
        return 0, "fine\n"

    agreed = contract(
        Criterion("all", "", Check("pytest -q")),
        Criterion("unseen", "", Check("pytest -q", ("tests/hidden/test_h.py::test_h",))),
    )
    stage = MergeStage(agreed, BASE, checks=looks)
    shift = await stage.begin(task("t", "all"))
    await checked(stage, shift, await stage.branch({"calc.py": b"def add(a, b):\n    return a + b\n"}))
    assert seen == {"pytest -q": False, "pytest -q tests/hidden/test_h.py::test_h": True}
    assert await verdicts(stage) == {"all": "pass", "unseen": "pass"}


async def test_nothing_of_a_hidden_check_is_told_but_the_type_and_the_product_s_functions() -> None:
    agreed = contract(Criterion("unseen", "", Check("pytest -q tests/hidden")))
    stage = MergeStage(agreed, BASE, checks=lambda command, files: (1, TRACE))
    shift = await stage.begin(task("t", "unseen"))
    work = await stage.branch({"calc.py": b"def add(a, b):\n    return _own()\n\n\ndef _own():\n    return {}[1]\n"})
    await checked(stage, shift, work)
    (fact,) = await stage.facts(CriterionChecked)
    told = "A hidden check failed. Its output is not shown. Type: KeyError. Functions on the stack: add."
    assert (fact.outcome, fact.output) == ("fail", told)


async def test_a_tree_that_touches_hidden_files_is_checked_with_those_of_people() -> None:
    def has(command: str, files: Files) -> tuple[int, str]:
        there = {path: data for path, data in files.items() if "/hidden/" in path}
        return (0 if there == {f"{ROOT}/tests/hidden/test_h.py": SECRET} else 1), ""

    stage = MergeStage(contract(Criterion("unseen", "", Check("pytest tests/hidden"))), BASE, checks=has)
    shift = await stage.begin(task("t", "unseen"))
    work = await stage.branch({"tests/hidden/test_h.py": b"", "tests/hidden/test_other.py": b""})
    await checked(stage, shift, work)
    assert await verdicts(stage) == {"unseen": "pass"}


async def working(stage: MissionStage, files: dict[str, bytes]) -> str:
    """A worker that was opened on these files; its folder."""
    stage.base = stage.repository.seed(files)
    shift = await stage.open()
    await open_role(shift, worker(stage))
    await stage.store.release(shift.lease)
    return f"/made/{await stage.named('worker core')}"


async def committed(stage: MissionStage) -> RepoCommitted:
    """The last commit of the worker, after it was woken."""
    await stage.wake("worker core")
    facts: list[RepoCommitted] = await stage.facts(RepoCommitted, await stage.named("worker core"))
    return facts[-1]


async def test_a_worker_has_no_hidden_files_and_its_commit_keeps_them() -> None:
    stage = MissionStage({"worker core": WORK}, contract=msgspec.structs.replace(CONTRACT, hidden=HIDDEN))
    folder = await working(stage, {**FILES, "tests/hidden/test_h.py": SECRET})
    assert set(stage.folders[Path(folder)]) == set(FILES)
    tree = await stage.repository.files((await committed(stage)).tree)
    assert (tree["tests/hidden/test_h.py"], tree["src/app/core.py"]) == (SECRET, DONE)


async def test_what_a_check_writes_at_hand_in_is_not_the_worker_s() -> None:
    def writes(command: str, files: Files) -> tuple[int, str]:
        files[f"{ROOT}/report.xml"] = b"<x/>"
        files[f"{ROOT}/tests/test_core.py"] = b"rewritten"
        files[f"{ROOT}/src/app/core.py"] = DONE + b"\n"
        return 0, ""

    stage = MissionStage({"worker core": WORK}, policy=MissionPolicy(hooks=False, checks=("format",)))
    stage.stage.hands._effect = writes
    await working(stage, FILES)
    fact = await committed(stage)
    tree = await stage.repository.files(fact.tree)
    assert fact.by_checks == ("report.xml", "tests/test_core.py")
    assert "report.xml" not in tree
    assert tree["tests/test_core.py"] == FILES["tests/test_core.py"]
    assert tree["src/app/core.py"] == DONE + b"\n", "a formatter puts the worker's own files in order"


async def test_what_judges_cannot_be_written_while_checks_run(tmp_path: Path) -> None:
    """In real hands: neither the file nor the folder that it is in."""
    made(tmp_path / "repo", {"tests/test_a.py": b"the true test\n", "app.sh": b"true\n"})
    kept = Criterion("kept", "", Check("sh app.sh | wc -l; grep -q true tests/test_a.py"))
    agreed = Contract("g", (Item("i", "all", criteria=(kept,)),), ("tests/**",))
    stage = MergeStage(agreed, real=tmp_path)
    stage.doors = replace(stage.doors, hands=BubblewrapProvider(tmp_path / "hands"), uid=lambda _: 0)
    shift = await stage.begin(task("t", "kept"))
    sly = b"echo fake > tests/test_a.py; mv tests old; mkdir -p tests; echo fake > tests/test_a.py; rm -rf tests\n"
    await checked(stage, shift, await stage.branch({"app.sh": sly}))
    assert await verdicts(stage) == {"kept": "pass"}


def test_many_files_are_shown_as_whole_folders(tmp_path: Path) -> None:
    for number in range(320):
        put_file(tmp_path, f"tests/a/test_{number}.py")
    put_file(tmp_path, "tests/b/test_x.py")
    put_file(tmp_path, "src/a.py")
    few = read_only(tmp_path, lambda path: matches(path, ("tests/b/**",)))
    assert few == ("tests/b/test_x.py",)
    assert read_only(tmp_path, lambda path: matches(path, ("tests/**",))) == ("tests",)
    mixed = read_only(tmp_path, lambda path: path.startswith("tests/a/") or path == "src/a.py")
    assert mixed == ("src/a.py", "tests/a")


def put_file(folder: Path, path: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("x")
