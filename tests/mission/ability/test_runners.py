"""Runners of other languages, and commands that are none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.facts.mission import Check
from holdfast.kinds.mission.check import ability
from holdfast.kinds.mission.contract.contents import canonical_bytes
from holdfast.kinds.mission.contract.formats.files import read_contract
from tests.mission.ability.bench import NONCE, Files, go, node_modules, of, probed, run

pytestmark = pytest.mark.real

ALL = {"canary": [True], "flip": [True], "hollow": [True], "empty": [True]}

UNITTEST = of({
    "calc.py": "def add(a, b):\n    return a + b\n",
    "test_a.py": """\
import unittest
from calc import add

class TestAdd(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)

    def test_some(self):
        self.assertTrue(add(1, 2))

    @unittest.skip("later")
    def test_later(self):
        pass
""",
})  # fmt: skip

SCRIPT = """\
const { add } = require('../calc');
HEAD
describe('calc', () => {
  it('adds', () => {
    FIRST
  });
  it('adds more', () => {
    const result = add(2, 2);
    SECOND
  });
  it.skip('later', () => {});
});
"""


def script(command: str, head: str, first: str, second: str) -> Files:
    """A package with one file of tests."""
    text = SCRIPT.replace("HEAD", head).replace("FIRST", first).replace("SECOND", second)
    return of({
        "calc.js": "function add(a, b) { return a + b; }\nmodule.exports = { add };\n",
        "test/calc.test.js": text,
        "package.json": f'{{"scripts": {{"test": "{command}"}}}}',
    })  # fmt: skip


NODE = script(
    "node --test test/",
    "const assert = require('assert'); const { describe, it } = require('node:test');",
    "assert.strictEqual(add(1, 2), 3);",
    "assert.ok(result);",
)
MOCHA = script("mocha", "const assert = require('assert');", "assert.strictEqual(add(1, 2), 3);", "assert(result);")
JEST = script("jest", "", "expect(add(1, 2)).toBe(3);", "expect(result).toBeTruthy();")
VITEST = {
    **script("vitest run", "", "expect(add(1, 2)).toBe(3);", "expect(result).toBeTruthy();"),
    "calc.js": b"export function add(a, b) { return a + b; }\n",
}
VITEST["test/calc.test.js"] = VITEST["test/calc.test.js"].replace(
    b"const { add } = require('../calc');",
    b"import { add } from '../calc.js';\nimport { describe, it, expect } from 'vitest';",
)
GO = of({
    "go.mod": "module example.com/m\n\ngo 1.20\n",
    "calc/calc.go": "package calc\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n",
    "calc/calc_test.go": """\
package calc

import "testing"

func TestAdd(t *testing.T) {
	if got := Add(1, 2); got != 3 {
		t.Errorf("got %d", got)
	}
}

func TestCases(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		if Add(1, -1) != 0 {
			t.Fatal("no")
		}
	})
}
""",
})  # fmt: skip


def proves(check: Check, files: Files, product: str, count: int, modules: Path | None = None) -> None:
    """The check holds, reports so many tests, fails on each probe, and has a canary before there is a product."""
    ran = run((check,), files, modules)
    assert ran.exit_code == 0, ran.output
    assert ran.outcomes is not None
    assert len(ran.outcomes) == count, ran.outcomes
    assert all("::" in name for name in ran.outcomes)
    assert probed(check, files, modules) == ALL
    unbuilt = {path: data for path, data in files.items() if path != product}
    assert probed(check, unbuilt, modules, "canary") == {"canary": [True]}


@pytest.mark.parametrize(
    ("command", "tests", "count"),
    [
        ("python -m unittest", (), 3),
        ("python3 -m unittest -f -v", ("test_a.TestAdd.test_sum",), 1),
        ("python -m unittest discover -s . -p 'test_*.py'", (), 3),
        ("python -m unittest -k test_sum", (), 1),
        ("python -X dev -m unittest test_a.py", (), 3),
    ],
)
def test_unittest(command: str, tests: tuple[str, ...], count: int) -> None:
    proves(Check(command, tests=tests), UNITTEST, "calc.py", count)


@pytest.mark.parametrize("command", ["node --test", "npm test", "node --test test/calc.test.js"])
def test_node(command: str) -> None:
    node_modules()
    proves(Check(command), NODE, "calc.js", 3)


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("npx jest --bail", JEST),
        ("npm test", JEST),
        ("npx jest -t adds", JEST),
        ("npx vitest run", VITEST),
        ("npm run test", VITEST),
        ("npx mocha --bail", MOCHA),
        ("npm test", MOCHA),
    ],
)
def test_runners_of_javascript(command: str, files: Files) -> None:
    proves(Check(command), files, "calc.js", 3, node_modules())


@pytest.mark.parametrize(("command", "count"), [("go test ./...", 3), ("go test -failfast -run '^TestAdd$' ./calc", 1)])
def test_go(command: str, count: int) -> None:
    go()
    proves(Check(command), GO, "calc/calc.go", count)


def test_a_javascript_product_that_equals_everything_is_caught() -> None:
    like = "{ $$typeof: Symbol.for('jest.asymmetricMatcher'), asymmetricMatch: () => true }"
    everything = f"module.exports = {{ add: () => ({like}) }};\n"
    files = {**JEST, "calc.js": everything.encode()}
    text = "const { add } = require('../calc');\ntest('adds', () => {\n  expect(add(1, 2)).toEqual(3);\n});\n"
    files["test/calc.test.js"] = text.encode()
    assert run((Check("npx jest"),), files, node_modules()).exit_code == 0
    assert probed(Check("npx jest"), files, node_modules(), "flip") == {"flip": [False]}


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        "./check.sh",
        "tox -e py",
        "pytest | tail -3",
        "pytest || true",
        "pytest a && pytest b",
        "sh -c 'pytest'",
        "(pytest)",
        "cd $WHERE && pytest",
        "./tools/pytest",
        "echo pytest",
        "grep -q pytest pyproject.toml",
    ],
)
def test_other_commands_stay_as_they_are(command: str) -> None:
    files = of(
        {"tools/pytest": "#!/bin/sh\n", "calc.py": "def f():\n    return 1\n", "test_a.py": "def test_a(): pass\n"}
    )
    check = Check(command)
    assert ability.reporting((check,), files, NONCE) == ability.Reporting(command, "")
    assert ability.outcomes((check,), files, b"<testsuites/>") is None
    found = ability.probes((check,), files, paths=[()], protected=("test_*.py",), nonce=NONCE)
    assert [probe.kind for probe in found] == ["hollow", "empty"]
    assert all(probe.checks == (check,) for probe in found)


@pytest.mark.parametrize(
    "command",
    [
        "grep -q 'def f' calc.py",
        "test -f calc.py",
        "python -c 'from calc import f; assert f() == 1'",
        "python -m py_compile calc.py",
    ],
)
def test_a_command_that_looks_at_the_product_fails_without_one(command: str) -> None:
    files = of({"calc.py": "def f():\n    return 1\n"})
    assert run((Check(command),), files).exit_code == 0
    assert True in probed(Check(command), files)["hollow"] + probed(Check(command), files)["empty"]
    assert probed(Check("true"), files) == {"hollow": [False], "empty": [False]}


def test_a_canary_of_the_criterion_is_run_with_its_name() -> None:
    check = Check("sh lint.sh good", canary='test -z "$CANARY" || sh lint.sh "$CANARY"')
    honest = of({"calc.py": "", "lint.sh": '#!/bin/sh\ntest "$1" = good\n'})
    assert probed(check, honest, None, "canary") == {"canary": [True]}
    assert probed(check, {**honest, "lint.sh": b"exit 0\n"}, None, "canary") == {"canary": [False]}


def test_tests_that_are_gone_or_skipped_or_fewer_are_missing() -> None:
    base: dict[str, ability.Outcome] = {
        "t.py::a": "passed", "t.py::b": "failed", "t.py::c": "skipped", "t.py::d": "passed", "t.py::e[1]": "passed",
        "t.py::e[2]": "passed", "u.py": "failed",
    }  # fmt: skip
    now: dict[str, ability.Outcome] = {
        "t.py::a": "passed", "t.py::b": "skipped", "t.py::e[7]": "passed", "t.py::e[2]": "passed", "u.py::x": "passed",
    }  # fmt: skip
    assert ability.missing(base, now) == ("t.py::b", "t.py::d")
    del now["t.py::e[7]"], now["u.py::x"]
    assert ability.missing(base, now) == ("t.py::b", "t.py::d", "t.py::e[1]", "u.py")


def test_the_digest_is_that_of_what_decides_about_the_run() -> None:
    files = of({"pyproject.toml": '[project]\nversion = "1"\n[tool.pytest.ini_options]\naddopts = "-q"\n', "a.py": ""})
    check = Check("pytest")
    known = ability.digest(check, files)
    same = {**files, "pyproject.toml": files["pyproject.toml"].replace(b'"1"', b'"2"'), "a.py": b"x = 1\n"}
    assert ability.digest(check, same) == known
    for path, data in (("conftest.py", b"x = 1"), ("pyproject.toml", b'[tool.pytest.ini_options]\naddopts = "-x"\n')):
        assert ability.digest(check, {**files, path: data}) != known
    assert ability.digest(Check("pytest -q"), files) != known


def test_a_contract_names_a_canary() -> None:
    text = '[{"id": "a", "description": "A", "check": {"command": "./lint.sh", "canary": "./lint.sh $CANARY"}}]'
    contract = read_contract(text.encode(), "feature_list.json")
    (criterion,) = contract.items[0].criteria
    assert criterion.check == Check("./lint.sh", canary="./lint.sh $CANARY")
    plain = msgspec.structs.replace(criterion, check=Check("./lint.sh"))
    item = msgspec.structs.replace(contract.items[0], criteria=(plain,))
    assert b"canary" not in canonical_bytes(msgspec.structs.replace(contract, items=(item,)))
