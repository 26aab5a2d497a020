"""A few tampers as whole verifications, one for each mechanism; `python -m tests.tampers.measure` runs all of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from holdfast.proof.tampers import TAMPERS
from tests.tampers.ablation import ALONE
from tests.tampers.corpus import Tamper, repos, tampers
from tests.tampers.measure import measure
from tests.tampers.runners import pytest_home
from tests.tampers.stage import Found, truth, whole

AT_ONCE = 3

SMALL = (
    "alone_counting",  # no test is reported, and nothing else tells it
    "equal_in_unittest",  # flip
    "unittest_result_class",  # canary
    "shadow_unittest",  # a new file that shadows a module is set aside
    "alone_read_only",  # what judges cannot be written while it runs
    "golden_edited",  # inspection
    "metric_at_exit",  # flip, in a program that measures
    "sh_trap_if_known",  # restating, in a program of people's own
    "git_ignores_product",  # what git ignores is as people have it
    "special_node",  # a hidden check
)

MORE = (
    "report_unittest_base_ids",  # flip, under the names that people gave
    "unittest_skipped",  # counting: tests did not pass
    "verify_emptied",  # what judges is as people have it
    "sh_trap",  # flip, in a program of people's own
    "unless_functions_differ",  # restating, in the tests of a runner
    "test_script_emptied",
    "gnumakefile",
)

TWINS = ("shell_twin", "metrics_twin", "js_runner_twin")


@pytest.fixture(scope="module")
def tools() -> Iterator[Path]:
    """Test runners, and room for verifications, where any user can pass."""
    with tempfile.TemporaryDirectory(prefix="tampers-") as folder:
        os.chmod(folder, 0o755)
        pytest_home(Path(folder))
        yield Path(folder)


async def _all(names: tuple[str, ...], tools: Path) -> dict[str, Found]:
    found: dict[str, Found] = {}
    room = anyio.CapacityLimiter(AT_ONCE)
    async with anyio.create_task_group() as group:
        for each in (tamper for tamper in tampers() if tamper.name in names):
            group.start_soon(_one, each, tools, room, found)
    assert len(found) == len(names)
    return found


async def _one(tamper: Tamper, tools: Path, room: anyio.CapacityLimiter, found: dict[str, Found]) -> None:
    async with room:
        base = tools / tamper.name
        base.mkdir(mode=0o755)
        found[tamper.name] = await whole(tamper, base, tools)
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.parametrize("names", [SMALL, pytest.param(MORE, marks=pytest.mark.faults)], ids=["small", "more"])
async def test_no_tamper_turns_a_check_green(names: tuple[str, ...], tools: Path) -> None:
    found = await _all(names, tools)
    assert [name for name, each in found.items() if each.outcome == "green"] == []


async def test_the_same_with_a_right_product_reaches_the_main_branch(tools: Path) -> None:
    found = await _all(TWINS, tools)
    assert {name: each.outcome for name, each in found.items()} == dict.fromkeys(TWINS, "green")


@pytest.mark.faults
@pytest.mark.parametrize("off", ALONE)
def test_a_mechanism_stops_what_no_other_stops(off: str) -> None:
    tamper = [each for each in tampers() if each.name == ALONE[off]]
    for less in ("", *(off.split("+") if "+" in off else ())):
        assert next(iter(measure(tamper, less))).outcome != "green", less
    assert next(iter(measure(tamper, off))).outcome == "green"


async def test_a_tamper_of_the_demo_changes_the_result_of_finished_work(tools: Path) -> None:
    """Else the demo would count a worker that had done its work as one that got a tamper through."""
    repo = repos()["py_helper"]
    for name in ("environment_set", "exit_hard"):
        edits = TAMPERS[name].make({**repo.files, **repo.right})
        files = {**repo.right, **{path: edit.content for path, edit in edits.items()}}
        base = tools / name
        base.mkdir(mode=0o755)
        found = await whole(Tamper(name, "", repo, files, False, False, False, ""), base, tools)
        assert found.outcome == "red", found


async def test_the_truth_tells_a_wrong_product(tools: Path) -> None:
    """What a tamper is measured by is no mechanism of ours: a check that is not in its repository."""
    right = next(each for each in tampers() if each.name == "js_runner_twin")
    wrong = next(each for each in tampers() if each.name == "js_assert_empty")
    for tamper, holds in ((right, True), (wrong, False)):
        base = tools / f"truth-{tamper.name}"
        base.mkdir(mode=0o755)
        assert await truth(tamper, base, tools) is holds


def test_the_corpus_is_as_large_as_it_has_to_be() -> None:
    bad = [each for each in tampers() if not each.twin]
    kinds = {each.kind for each in bad}
    assert len(bad) >= 150
    assert len(kinds) >= 20
    assert sum(each.knows for each in bad) >= 75
    assert {each.kind for each in tampers() if each.twin} == kinds
    assert all(each.about for each in tampers())
    assert all(repo.truth for repo in repos().values())
