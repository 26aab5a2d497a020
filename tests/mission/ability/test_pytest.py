"""Checks that run pytest: honest work fails on every probe, and what was tampered with does not."""

from __future__ import annotations

import pytest

from holdfast.facts.mission import Check
from holdfast.kinds.mission.check import ability
from tests.mission.ability.bench import NONCE, of, probed, run

pytestmark = pytest.mark.real

PRODUCT = {"calc/__init__.py": "", "calc/core.py": "def add(a, b):\n    return a + b\n"}
CONFTEST = {
    "conftest.py": "import pytest\nfrom calc.core import add\n\n@pytest.fixture\ndef two():\n    return add(1, 1)\n"
}
TESTS = {
    "tests/test_a.py": """\
import pytest
from calc.core import add

def test_one(two):
    assert add(1, two) == 3

@pytest.mark.parametrize("a", [1, 2])
def test_many(a):
    assert add(a, 0) == a

class TestSums:
    def test_sum(self):
        result = add(2, 2)
        assert result == 4

@pytest.mark.slow
def test_slow():
    assert add(5, 5) == 10

@pytest.mark.xfail
def test_wrong():
    assert add(1, 1) == 3
""",
    "tests/test_b.py": "from calc.core import add\n\ndef test_text():\n    assert add('a', 'b') == 'ab'\n",
    "pytest.ini": "[pytest]\nmarkers =\n    slow: takes long\n",
}
HONEST = of({**PRODUCT, **CONFTEST, **TESTS})
UNBUILT = of({**CONFTEST, **TESTS})

SELECTIONS = {
    "all": Check("pytest -q"),
    "folder": Check("python -m pytest tests"),
    "file": Check("pytest", tests=("tests/test_a.py",)),
    "test": Check("pytest", tests=("tests/test_a.py::test_one",)),
    "in the command": Check("pytest tests/test_a.py::test_one -v"),
    "case": Check("pytest", tests=("tests/test_a.py::test_many[1]",)),
    "method": Check("pytest -x", tests=("tests/test_a.py::TestSums::test_sum",)),
    "class": Check("pytest --maxfail 1", tests=("tests/test_a.py::TestSums",)),
    "words": Check("pytest -k 'one and not two'"),
    "word of a class": Check("pytest -k TestSums tests"),
    "mark": Check("pytest -m slow --strict-markers"),
    "folder of its own": Check("cd tests && PYTHONPATH=.. python3 -m pytest test_b.py"),
    "ignored": Check("pytest --ignore=tests/test_a.py"),
    "no reports, only the last failed": Check("env A=b timeout 60 pytest -p no:junitxml --lf -s tests/test_b.py"),
    "then another command": Check("pytest -q tests && echo done"),
}


@pytest.mark.parametrize("check", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_a_check_of_honest_work_fails_on_every_probe(check: Check) -> None:
    ran = run((check,), HONEST)
    assert ran.exit_code == 0, ran.output
    assert ran.outcomes
    assert probed(check, HONEST, None, "canary", "flip") == {"canary": [True], "flip": [True]}


@pytest.mark.parametrize("selection", ["folder", "case", "method", "words"])
def test_a_canary_is_reported_before_there_is_a_product(selection: str) -> None:
    assert probed(SELECTIONS[selection], UNBUILT, None, "canary") == {"canary": [True]}


SETTINGS = {
    "stops at the first": {"pytest.ini": "[pytest]\naddopts = -x\nmarkers = slow\n"},
    "other names": {
        "pytest.ini": "[pytest]\npython_files = check_*.py\ntestpaths = tests\n",
        "tests/check_c.py": "from calc.core import add\ndef test_c():\n    assert add(1, 1) == 2\n",
    },
    "no marks but known ones": {
        "pyproject.toml": "[tool.pytest.ini_options]\n"
        + "addopts = ['--strict-markers', '-q']\nmarkers = ['slow']\n",
    },
    "doctests too": {"pytest.ini": "[pytest]\naddopts = --doctest-modules\nmarkers = slow\n"},
    "a suite that checks itself": {
        "conftest.py": CONFTEST["conftest.py"]
        + "\ndef pytest_collection_modifyitems(items):\n    items.sort(key=lambda item: item.name)\n"
        + "    assert all(item.get_closest_marker('never') is None for item in items)\n",
    },
    "layout with src": {
        "calc/core.py": "",
        "src/calc/core.py": PRODUCT["calc/core.py"],
        "src/calc/__init__.py": "",
        "pytest.ini": "[pytest]\npythonpath = src\nmarkers = slow\n",
        "calc/__init__.py": "__path__ = __import__('pkgutil').extend_path(__path__, __name__)[::-1]\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_settings_of_the_suite_do_not_get_in_the_way(settings: dict[str, str]) -> None:
    files = {**HONEST, **of(settings)}
    if "pyproject.toml" in files:
        del files["pytest.ini"]
    ran = run((Check("pytest"),), files)
    assert ran.exit_code == 0, ran.output
    told = probed(Check("pytest"), files, None, "canary", "flip")
    assert (told["canary"], told["flip"]) == ([True], [True])


def test_one_run_proves_all_checks_of_a_group_one_by_one() -> None:
    names = ("tests/test_a.py::test_one", "tests/test_a.py::TestSums", "tests/test_b.py")
    told = probed([Check("pytest", tests=(name,)) for name in names], HONEST)
    assert told == {kind: [True] * 3 for kind in ("canary", "flip", "hollow", "empty")}


EVERYTHING = """\
class Everything:
    def __eq__(self, other):
        return True
    __ne__ = lambda self, other: False
    __hash__ = None

def add(a, b):
    return Everything()
"""
PICKY = EVERYTHING.replace("return True", "return type(other).__module__ == 'builtins'")
ENDS = "import os\n\ndef add(a, b):\n    os._exit(0)\n"
REPORTS = """\
import _pytest.runner as runner

old = runner.pytest_runtest_makereport

def add(a, b):
    from _pytest.reports import TestReport
    original = TestReport.from_item_and_call
    def passed(item, call):
        call.excinfo = None
        return original(item, call)
    TestReport.from_item_and_call = passed
    return 0
"""


@pytest.mark.parametrize(
    ("product", "kind"),
    [(EVERYTHING, "flip"), (PICKY, "flip"), (ENDS, "canary"), (REPORTS, "canary")],
    ids=["equal", "picky", "ends", "reports"],
)
def test_what_makes_tests_pass_makes_a_probe_pass(product: str, kind: str) -> None:
    files = {**HONEST, "calc/core.py": product.encode()}
    files["conftest.py"] = b""
    files["tests/test_a.py"] = b"from calc.core import add\n\ndef test_one():\n    assert add(1, 2) == 3\n"
    check = Check("pytest", tests=("tests/test_a.py",))
    assert run((check,), files).exit_code == 0
    assert probed(check, files, None, kind)[kind] == [False]


def test_outcomes_are_those_of_the_tests_that_a_check_names() -> None:
    ran = run((Check("pytest"),), HONEST)
    assert ran.outcomes is not None
    assert ran.outcomes["tests/test_a.py::TestSums::test_sum"] == "passed"
    assert ran.outcomes["tests/test_a.py::test_wrong"] == "skipped"
    ran = run((Check("pytest", tests=("tests/test_a.py::test_many",)),), HONEST)
    assert ran.outcomes == {f"tests/test_a.py::test_many[{each}]": "passed" for each in (1, 2)}
    assert ability.outcomes((Check("pytest"),), HONEST, b"<!DOCTYPE x><testsuites/>") is None
    assert ability.outcomes((Check("pytest"),), HONEST, b"not a report") is None


def test_a_flip_leaves_tests_alone_that_may_not_fail_by_it() -> None:
    text = """\
import pytest
from calc import f

def test_early(x=1):
    if x:
        return
    assert f() == 1

@pytest.mark.xfail
def test_expected():
    assert f() == 1

def test_skips():
    pytest.importorskip("nothing")
    assert f() == 1

def test_twice():
    assert f() == 1

def test_twice():
    pass

def test_inner():
    with pytest.raises(ValueError):
        assert f() == 1
"""
    files = of({"tests/test_a.py": text, "calc.py": "def f():\n    return 1\n"})
    found = ability.probes((Check("pytest"),), files, paths=[()], protected=("tests/**",), nonce=NONCE)
    assert [probe.kind for probe in found] == ["canary", "hollow", "empty"]


GOLDEN = of({
    "tests/golden/sum.json": '{"sum": 3, "names": ["a"]}',
    "tests/test_sum.py": (
        "import json\nfrom pathlib import Path\nfrom calc import made\n\n"
        "def test_sum():\n    want = json.loads((Path(__file__).parent / 'golden' / 'sum.json').read_text())\n"
        "    assert made() == want\n"
    ),
    "calc.py": "def made():\n    return {'sum': 1 + 2, 'names': ['a']}\n",
    "pytest.ini": "[pytest]\npythonpath = .\n",
})  # fmt: skip
READING = b"import json\n\ndef made():\n    return json.load(open('tests/golden/sum.json'))\n"


def test_a_product_that_reads_what_is_expected_passes_with_other_values_too() -> None:
    check = Check("pytest -q tests")
    assert probed(check, GOLDEN, None, "data") == {"data": [True]}
    assert probed(check, {**GOLDEN, "calc.py": READING}, None, "data") == {"data": [False]}


def test_tests_beside_a_canary_are_restated_and_pass() -> None:
    check = Check("pytest -q tests")
    (canary, *_) = ability.probes([check], HONEST, paths=[()], protected=("tests/**",), nonce=NONCE)
    assert b"== int('3')" in (canary.files["tests/test_a.py"] or b"")
    ran = run(canary.checks, {**HONEST, **{path: data or b"" for path, data in canary.files.items()}})
    failed = [name for name, outcome in (ran.outcomes or {}).items() if outcome == "failed"]
    assert failed
    assert all(NONCE in name for name in failed)
