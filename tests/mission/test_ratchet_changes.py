"""Legitimate changes of a suite: what is only more is free, what is another is asked about and not accused."""

from __future__ import annotations

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.facts.task import Violation
from holdfast.kinds.mission.ratchet.inspection import inspect
from holdfast.repo.repository import FileChange
from tests.mission.ratchet_mini import FILES, held

SUITE = "tests/test_knots.py"
TEXT = FILES[SUITE].decode()


def said(path: str, text: str) -> list[Violation]:
    return list(held(FILES, {**FILES, path: text.encode()}).violations)


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, 1)


FREE = {
    "a new test": TEXT + "\n\ndef test_more():\n    assert bend('a') == 'a:1'\n",
    "a new test that is skipped": TEXT + "\n\n@pytest.mark.skip\ndef test_later():\n    assert False\n",
    "a new class": TEXT + "\n\nclass TestMore:\n    def setup_method(self):\n        self.rope = 'a'\n\n"
    "    def test_it(self):\n        assert bend(self.rope)\n",
    "a new test in a class": TEXT + "\n    def test_one(self):\n        self.assertEqual(hitch('a'), 'a:1')\n",
    "a new case": changed("[1, 2, 3]", "[1, 2, 3, 4]"),
    "a new case among others": changed("[1, 2, 3]", "[0, 1, 2, pytest.param(7, id='seven'), 3]"),
    "a new case that is marked": changed("[1, 2, 3]", "[1, 2, 3, pytest.param(9, marks=pytest.mark.xfail)]"),
    "a new import": changed("import unittest", "import math\nimport unittest"),
    "one more name of an import": changed("from harbor import bend, hitch", "from harbor import bend, hitch, splice"),
    "an import that nothing needs goes": TEXT.replace("import unittest", "import os\nimport unittest"),
    "a new helper": changed("def test_bend", "def loop(rope):\n    return bend(rope)\n\n\ndef test_bend"),
    "a new fixture": changed("def test_bend", "@pytest.fixture\ndef twine():\n    return 't'\n\n\ndef test_bend"),
    "a main block": TEXT + "\n\nif __name__ == '__main__':\n    unittest.main()\n",
    "a new constant": changed("def test_bend", "ROPES = ['a', 'b']\n\n\ndef test_bend"),
    "one more assertion": changed("    assert tight(knot)\n", '    assert tight(knot)\n    assert ":" in knot\n'),
    "more at the end of a test": changed(
        '== "manila:2"\n', '== "manila:2"\n    other = bend(rope)\n    assert other\n'
    ),
    "a docstring": changed("def test_bend():\n", 'def test_bend():\n    """Bends."""\n'),
    "comments and blank lines": "# knots\n\n" + TEXT.replace("    assert tight", "    # it holds\n\n    assert tight"),
    "other quotes": TEXT.replace('"hemp"', "'hemp'"),
    "another order": TEXT.replace('def test_line(line):\n    assert hitch(line) == "sisal:1"\n\n\n', "")
    + '\n\ndef test_line(line):\n    assert hitch(line) == "sisal:1"\n',
}

ASKED = {
    "another expected value": (changed('"jute:3"', '"jute:4"'), "test_edited"),
    "another way to the same": (changed("knot = hitch(rope)", "knot = bend(rope, 2)"), "test_edited"),
    "another case": (changed("[1, 2, 3]", "[1, 2, 5]"), "test_edited"),
    "another name": (changed("def test_bend", "def test_bends"), "test_deleted"),
    "another fixture": (changed('return "sisal"', 'return "flax"'), "test_edited"),
    "another argument": (changed("def test_line(line)", "def test_line(line, rope)"), "test_edited"),
    "a mark that is no skip": (changed("def test_bend", "@pytest.mark.slow\ndef test_bend"), "test_edited"),
    "an import from elsewhere": (changed("from helpers import", "from harbor.testing import"), "test_edited"),
    "equality as identity": (changed('assert knot == "manila:2"', 'assert "manila:2" == knot'), "test_edited"),
}


@pytest.mark.parametrize("name", FREE)
def test_more_is_free(name: str) -> None:
    assert said(SUITE, FREE[name]) == []


@pytest.mark.parametrize("name", ASKED)
def test_another_is_asked_about(name: str) -> None:
    text, rule = ASKED[name]
    assert {each.rule for each in said(SUITE, text)} == {rule}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tests/test_more.py", "import os\n\nimport pytest\n\n\n@pytest.mark.skipif(os.name == 'nt', reason='no')\n"
         "def test_it(monkeypatch):\n    monkeypatch.setenv('A', 'b')\n    assert os.environ['A'] == 'b'\n"),
        ("tests/deep/__init__.py", ""),
        ("tests/deep/test_it.py", "import sys\n\nsys.path.insert(0, '.')\n\n\ndef test_it():\n    assert sys.path\n"),
        ("tests/data/more.json", "{}\n"),
        ("tests/knot_tools.py", "def tie():\n    return 1\n"),
    ],
)  # fmt: skip
def test_new_files_of_tests_are_free(path: str, text: str) -> None:
    assert said(path, text) == []


@pytest.mark.parametrize("path", ["tests/conftest.py", "tests/deep/conftest.py"])
def test_more_fixtures_are_free(path: str) -> None:
    """They are there when checks run, as new files of tests are."""
    old = FILES.get(path, b"import pytest\n").decode()
    assert said(path, old + "\n\n@pytest.fixture\ndef cable():\n    return 'c'\n") == []
    assert said("tests/conftest.py", FILES["tests/conftest.py"].decode() + "\n# the end\n") == []


@pytest.mark.parametrize(
    "more",
    [
        "@pytest.fixture(autouse=True)\ndef cable():\n    return 'c'\n",
        "@pytest.fixture\ndef line():\n    return 'c'\n",
        "def pytest_runtest_makereport(item, call):\n    pass\n",
        "pytest_plugins = ['x']\n",
        "pytest.skip = print\n",
        "ROPE = exec('x')\n",
        "def cable(x=exec('x')):\n    return x\n",
        "def len(x):\n    return 1\n\n\nimport harbor as pytest\n",
    ],
)
def test_what_comes_around_the_tests_that_were_there_is_asked_about(more: str) -> None:
    old = FILES["tests/conftest.py"].decode()
    assert [each.rule for each in said("tests/conftest.py", f"{old}\n\n{more}")] == ["test_edited"]


def test_a_skip_that_goes_is_free() -> None:
    skipped = TEXT.replace("def test_bend", "@pytest.mark.skip\ndef test_bend").encode()
    assert held({**FILES, SUITE: skipped}, FILES).violations == ()


def test_a_test_that_moves_to_another_file_is_asked_about() -> None:
    head, _, tail = TEXT.partition("def test_line")
    moved, _, rest = tail.partition("\n\n\n")
    after = {**FILES, SUITE: (head + rest).encode(), "tests/test_lines.py": f"def test_line{moved}\n".encode()}
    assert {each.rule for each in held(FILES, after).violations} == {"test_deleted"}


def test_registering_a_mark_is_free_and_everything_else_of_pytest_is_not() -> None:
    old = FILES["pyproject.toml"].decode()
    assert said("pyproject.toml", old + 'markers = ["slow: takes long"]\n') == []
    assert said("pyproject.toml", old.replace('version = "1.0"', 'version = "1.1"')) == []
    assert [each.rule for each in said("pyproject.toml", old.replace("--strict-markers", "-x"))] == ["test_config"]


def test_a_product_may_do_what_products_do() -> None:
    text = """
import atexit
import os
import sys
import time


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        if not isinstance(other, Point):
            return NotImplemented
        return self.x == other.x


class Cache:
    hits = 0

    def get(self, key):
        self.hits += 1
        if self.hits > 100:
            self.clear()
        return key

    def clear(self):
        self.hits = 0


def main(argv):
    if not argv:
        sys.exit(2)
    atexit.register(time.time)
    os.environ.setdefault("HARBOR_HOME", "/tmp")
    return open("data.txt").read()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
"""
    assert said("src/harbor/points.py", text) == []


def test_a_program_of_the_project_may_not_be_called_as_a_tool_is() -> None:
    old = FILES["pyproject.toml"].decode()
    assert said("pyproject.toml", old + '\n[project.scripts]\nharbor = "harbor:main"\n') == []
    assert [each.rule for each in said("pyproject.toml", old + '\n[project.scripts]\npytest = "harbor:main"\n')] == [
        "test_config"
    ]


def test_checkers_that_are_told_to_pass_over_are_listed() -> None:
    text = FILES["src/harbor/knots.py"].decode().replace("import re", "import re  # noqa: F401")
    found = held(FILES, {**FILES, "src/harbor/knots.py": text.encode()})
    assert found.violations == ()
    assert any("suppressed warnings" in line for line in found.unasked)


@pytest.mark.parametrize(
    ("command", "paths", "refused"),
    [
        ("sh greet.sh Bo | grep -q Bo", (), False),  # what grep says counts
        ("sh greet.sh Bo", (), True),
        ("sh greet.sh Bo", ("greet.sh",), False),
        ("make check", (), True),
        ("cd sub && make check", (), False),
    ],
)
def test_a_script_judges_by_its_exit_status(command: str, paths: tuple[str, ...], refused: bool) -> None:
    before = {"greet.sh": b"exit 1\n", "Makefile": b"check:\n\tsh greet.sh\n"}
    contract = Contract(
        "g", (Item("greet", "greets", criteria=(Criterion("greet", "it greets", Check(command)),), paths=paths),)
    )
    found = inspect(
        before,
        {**before, "greet.sh": b"echo Hello, $1.\n"},
        [FileChange("greet.sh", "changed", "100644")],
        protected=(),
        scope=(),
        contract=contract,
        policy=MissionPolicy(),
        allowed={},
    )
    assert [each.rule for each in found.violations] == (["check_script"] if refused else [])


JS = 'const { add } = require("./a");\n\ntest("a", () => {\n  expect(add(1)).toBe(1);\n});\n'


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("tests/a.test.js", JS, JS.replace('test("a"', 'test.skip("a"')),
        ("tests/a.test.js", JS, JS.replace("  expect(add", "  return;\n  expect(add")),
        ("tests/a.test.js", JS, JS + 'test.only("b", () => {});\n'),
        ("tests/a.test.js", JS, JS + "beforeEach(() => {});\n"),
        ("tests/a.test.js", JS, JS + "expect = () => ({ toBe() {} });\n"),
        ("tests/a.test.js", JS, JS + "process.on('exit', () => 0);\n"),
        ("tests/a.test.js", JS, JS.replace("./a", "./b")),
        (
            "tests/a_test.go",
            "func TestA(t *testing.T) {\n\tx()\n}\n",
            "func TestA(t *testing.T) {\n\treturn\n\tx()\n}\n",
        ),
        ("tests/a_test.go", "package a\n", "package a\n\nfunc TestMain(m *testing.M) {\n}\n"),
        ("tests/a.c", "int main(void) {\n  one();\n}\n", "int main(void) {\n  return 0;\n  one();\n}\n"),
        ("tests/a.c", "int main(void) {\n  one();\n}\n", "#define assert(x)\nint main(void) {\n  one();\n}\n"),
        ("tests/run.sh", "set -e\n./a\n", "set -e\nexit 0\n./a\n"),
        ("tests/a_spec.rb", "it { x }\n", "exit\nit { x }\n"),
    ],
)
def test_other_languages_are_asked_about_what_is_no_case_of_its_own(path: str, old: str, new: str) -> None:
    found = held({path: old.encode()}, {path: new.encode()}).violations
    assert [each.rule for each in found] == ["test_edited"]


@pytest.mark.parametrize(
    ("path", "old", "new", "refused"),
    [
        ("Cargo.toml", "[lib]\n", "[lib]\ntest = false\n", True),
        ("Cargo.toml", '[package]\nversion = "1"\n', '[package]\nversion = "2"\n', False),
        ("pom.xml", "<project></project>", "<project><skipTests>true</skipTests></project>", True),
        ("pom.xml", "<project><version>1</version></project>", "<project><version>2</version></project>", False),
        ("package.json", '{"name": "a"}', '{"name": "a", "type": "module"}', False),
        ("package.json", '{"name": "a"}', '{"name": "a", "jest": {"testRegex": "x"}}', True),
        ("package.json", "{}", '{"scripts": {"postinstall": "node x.js"}}', True),
    ],
)
def test_manifests_are_asked_about_where_they_say_what_is_tested(path: str, old: str, new: str, refused: bool) -> None:
    found = held({path: old.encode()}, {path: new.encode()}).violations
    assert [each.rule for each in found] == (["test_config"] if refused else [])
