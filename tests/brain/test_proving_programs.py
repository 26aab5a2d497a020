"""Checks by programs of people's own, and tests that a worker adds: real hands, real shells, fooled and honest."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, Item, Metric
from holdfast.kinds.mission.check import proofs
from tests.brain.merge_stage import state_of
from tests.brain.proving_stage import BASE, PYTEST, RIGHT, WRONG, criterion, proving

pytestmark = pytest.mark.anyio

VERIFY = """\
. ./lib.sh
expect() { [ "$1" = "$2" ] || { echo "got '$1', want '$2'"; exit 1; }; }
expect "$(double 4)" 8
"""
UNFINISHED, DONE = b"double() { return 1; }\n", b"double() { echo $(($1 * 2)); }\n"
FOOLED = {
    "ends the run": b"exit 0\n",
    "ends it at the end": b"trap 'exit 0' EXIT\n" + UNFINISHED,
    "reads what is expected": b"double() { sed -n 's/^expect .* //p' verify.sh; }\n",
}


def judged(command: str, *paths: str, metric: Metric | None = None) -> Contract:
    """One item with one check."""
    check = Criterion("it", "it works", Check(command, (), metric, timeout_s=60.0))
    return Contract("g", (Item("i", "it", criteria=(check,), paths=paths),), ("tests/**",))


SCRIPT = judged("sh verify.sh", "lib.sh")
SHELL = {"verify.sh": VERIFY.encode(), "lib.sh": UNFINISHED}


async def test_a_script_that_fails_at_the_base_is_proven_by_what_it_expects(tmp_path: Path) -> None:
    async with proving(tmp_path, SCRIPT, SHELL) as stage:
        assert await stage.verified({"lib.sh": DONE}) == {"it": "pass"}
        assert (await stage.probed())["it"].flip == "yes"
        assert (await stage.proved())["it"].shown == ("flip",)
        assert proofs.evidence(state_of(stage.shift), "it") == ""


@pytest.mark.parametrize(
    "how", ["ends the run", "reads what is expected", pytest.param("ends it at the end", marks=pytest.mark.faults)]
)
async def test_a_product_that_fools_a_script_is_red(tmp_path: Path, how: str) -> None:
    async with proving(tmp_path, SCRIPT, SHELL) as stage:
        assert await stage.verified({"lib.sh": FOOLED[how]}) == {"it": "fail"}
        assert await stage.note("it") == proofs.LOST["flip"]


async def test_a_program_that_only_reads_a_judge_is_not_asked_what_it_expects(tmp_path: Path) -> None:
    """It fails at the base; what it names is never run, so that no answer in it can matter."""
    contract = judged("sh -n tests/verify.sh && sh -n lib.sh", "lib.sh")
    files = {"tests/verify.sh": VERIFY.encode(), "lib.sh": b"double() {\n"}
    async with proving(tmp_path, contract, files) as stage:
        assert await stage.verified({"lib.sh": DONE}) == {"it": "pass"}
        assert (await stage.probed())["it"].flip == "base"


BENCH = b"from app import add\nright = 0\nfor n in range(4):\n    right += add(n, 1) == n + 1\nprint(right * 25)\n"


async def test_a_number_that_is_printed_whatever_is_measured_counts_for_nothing(tmp_path: Path) -> None:
    contract = judged("python3 bench.py", "app.py", metric=Metric(90.0))
    base = {"bench.py": BENCH, "app.py": b"def add(a, b):\n    return 7\n"}
    async with proving(tmp_path, contract, base) as stage:
        printed = b"import atexit\natexit.register(print, 100)\n" + base["app.py"]
        assert await stage.verified({"app.py": printed}) == {"it": "fail"}
        (tree, *_) = [each for each, known in state_of(stage.shift).verdicts.items() if known["it"].note]
        assert "it" not in state_of(stage.shift).measured.get(tree, {})
        assert await stage.verified({"app.py": RIGHT}, effect="task:t:2") == {"it": "pass"}


async def test_a_step_towards_a_target_is_proven_like_a_pass(tmp_path: Path) -> None:
    contract = judged("python3 bench.py", "app.py", metric=Metric(90.0))
    base = {"bench.py": BENCH, "app.py": b"def add(a, b):\n    return 1\n"}
    async with proving(tmp_path, contract, base) as stage:
        printed, half = (
            b"import atexit\natexit.register(print, 50)\n",
            b"def add(a, b):\n    return a + b if a < 2 else 7\n",
        )
        values = []
        for number, text in enumerate((printed + base["app.py"], half)):
            commit, tree = stage.commit({"app.py": text})
            assert await stage.verify(commit, tree, effect=f"task:t:{number}") == {"it": "fail"}
            values.append(state_of(stage.shift).measured.get(tree, {}).get("it"))
        assert values == [None, 50]


BESIDE = {
    "tests/test_aaa.py": (
        b"import app\napp.add = lambda a, b: a + b\n\n\ndef test_first():\n    assert app.add(1, 1) == 2\n"
    ),
    "app.py": WRONG,
}


@pytest.mark.parametrize(
    "command", [pytest.param(PYTEST, marks=pytest.mark.faults), "sh -c 'python3 -m pytest -q tests/'"]
)
async def test_tests_that_were_added_do_not_help_those_that_were_there(tmp_path: Path, command: str) -> None:
    contract = Contract("g", (Item("i", "it", criteria=(criterion("it", command),), paths=("app.py",)),), ("tests/**",))
    files = {path: data for path, data in BASE.items() if "shout" not in path and "old" not in path}
    async with proving(tmp_path, contract, files) as stage:
        assert await stage.verified(BESIDE) == {"it": "fail"}
        honest = {"tests/test_aaa.py": b"import app\n\n\ndef test_one():\n    assert app.add(1, 1) == 2\n"}
        assert await stage.verified({**honest, "app.py": RIGHT}, effect="task:t:2") == {"it": "pass"}


GOLDEN = {
    "tests/test_page.py": (
        b"from pathlib import Path\nfrom app import page\n\n\n"
        b"def test_page():\n    assert page() == (Path(__file__).parent / 'golden' / 'page.txt').read_text()\n"
    ),
    "tests/golden/page.txt": b"a page\n",
    "app.py": b"def page():\n    raise NotImplementedError\n",
}


async def test_a_file_of_what_is_expected_has_to_be_read(tmp_path: Path) -> None:
    contract = Contract("g", (Item("i", "it", criteria=(criterion("it"),), paths=("app.py",)),), ("tests/**",))
    fooled = b"import pathlib\npathlib.Path.read_text = lambda self: ''\n\n\ndef page():\n    return ''\n"
    async with proving(tmp_path, contract, GOLDEN) as stage:
        assert await stage.verified({"app.py": fooled}) == {"it": "fail"}
        assert await stage.note("it") == proofs.LOST["data"]
        right = b"def page():\n    return 'a page\\n'\n"
        assert await stage.verified({"app.py": right}, effect="task:t:2") == {"it": "pass"}
        assert (await stage.proved())["it"].shown == ("canary", "data", "flip")


async def test_tests_that_a_class_inherits_may_fall_with_those_that_are_turned(tmp_path: Path) -> None:
    files = {
        "tests/test_one.py": (
            b"import app\n\n\nclass TestOne:\n    def test_add(self):\n        assert app.add(1, 2) == 3\n"
        ),
        "tests/test_two.py": b"from tests.test_one import TestOne\n\n\nclass TestTwo(TestOne):\n    pass\n",
        "tests/__init__.py": b"",
        "app.py": BASE["app.py"],
    }
    contract = Contract("g", (Item("i", "it", criteria=(criterion("it"),), paths=("app.py",)),), ("tests/**",))
    async with proving(tmp_path, contract, files) as stage:
        assert await stage.verified({"app.py": RIGHT}) == {"it": "pass"}


@pytest.mark.faults
async def test_a_look_before_the_work_confirms_nothing(tmp_path: Path) -> None:
    async with proving(tmp_path) as stage:
        assert await stage.verified({"app.py": RIGHT}, "add", effect="before:t") == {"add": "pass"}
        assert state_of(stage.shift).greened == {}
        more = {"app.py": RIGHT + b"\n"}
        assert await stage.verified(more, "add", effect="task:t:1") == {"add": "pass"}
        assert set(state_of(stage.shift).greened) == {"add"}
