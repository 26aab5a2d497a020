"""Programs that judge: what in them is altered, what is left alone, and what ends in their place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.facts.mission import Check, Metric
from holdfast.kinds.mission.check import ability
from holdfast.kinds.mission.check.ability import programs
from tests.mission.ability.bench import of

pytestmark = pytest.mark.real

SHELL = """\
expect "$(count 'one two')" 2
test "$(sh ./greet Ann)" = "Hello, Ann!" || exit 1
[ "$sum" -eq 15 ]
[ "$left" -eq 0 ]
if [ "$1" = "--verbose" ]; then set -x; fi
[ -n "$CI" ] && test "$mode" = fast
"""

ALTERED = """\
expect "$(count 'one two')" 3
test "$(sh ./greet Ann)" = "Hello, Ano!" || exit 1
[ "$sum" -eq 16 ]
[ "$left" -eq 0 ]
if [ "$1" = "--verbose" ]; then set -x; fi
[ -n "$CI" ] && test "$mode" = fast
"""

C = """\
int main(int argc, char **argv) {
    if (argc != 2) return 2;
    assert(sum(values, 3) == 15);
    if (largest(values, 3) != 9) return 1;
    CHECK_EQ(sum(values, 0), 0);
    if (strcmp(argv[1], "fast") == 0) fast = 1;
}
"""

C_ALTERED = C.replace("== 15", "== 16").replace("!= 9", "!= 10").replace("0), 0)", "0), 1)")

NODE = """\
if (process.argv[2] === 'fast') quick();
assert.strictEqual(total([1, 2, 39]), 42);
assert.deepStrictEqual(slug('A b'), 'a-b', 'slugs');
if (median([1]) !== 7) throw new Error('no');
"""

NODE_ALTERED = NODE.replace("42", "43").replace("'a-b'", "'a-c'").replace("!== 7", "!== 8")

TEXT = """\
    >>> total([1, 2, 39])
    42
    >>> 1 / 0
    Traceback (most recent call last):
    ...
    ZeroDivisionError: division by zero
"""


@pytest.mark.parametrize(
    ("path", "text", "altered"),
    [
        ("run.sh", SHELL, ALTERED),
        ("test.c", C, C_ALTERED),
        ("check.js", NODE, NODE_ALTERED),
        ("usage.md", TEXT, TEXT.replace("42", "43")),
        ("Makefile", 'all:\n\ttest "$$(./a)" = b\n', 'all:\n\ttest "$$(./a)" = c\n'),
        ("run", "#!/bin/sh\ncheck $(./a) 9\n", "#!/bin/sh\ncheck $(./a) 10\n"),
        ("data.json", '{"want": 3}', None),
        ("run.sh", "set -e\n./program\n", None),
        ("notes.md", "Nothing to try.\n", None),
    ],
)
def test_what_is_expected_is_altered_and_nothing_else(path: str, text: str, altered: str | None) -> None:
    found = programs.turned(path, text.encode())
    assert (found.decode() if found is not None else None) == altered


def test_a_restated_check_moves_its_lines_and_names_its_values_elsewhere() -> None:
    for path, text, told in (
        ("run.sh", SHELL, ['two\')" 2""\n', '"Hello, Ann!""" ||', '-eq 15"" ]', "-eq 0 ]", '= "--verbose" ]']),
        ("test.c", C, ["== mock", "define mock", " 15\n", "argc != 2"]),
        ("check.js", NODE, ["39]), mock", "return 42; }", "argv[2] === 'fast'"]),
        ("a.ts", NODE, ["39]), (42));"]),
        ("Makefile", 'CHECK := 3\nall:\n\ttest "$$(./a)" = b\n', ['= b""\n', "CHECK := 3\n"]),
        ("run.sh", "#!/bin/sh\ncheck $(./a) 9\n", ['#!/bin/sh\ncheck $(./a) 9""\n']),
    ):
        found = programs.restated(path, text.encode(), "c0ffee")
        assert found is not None
        assert [each for each in told if each not in found.decode()] == [], found.decode()
        assert found.startswith(b"#!" if text.startswith("#!") else b"\n")
    assert programs.restated("usage.md", TEXT.encode(), "c0ffee") is None


QUOTED = "assert(text.includes(\"n == 'b'\"));\nif (text !== 'a == 5') throw new Error();\n"


def test_a_value_inside_a_text_is_part_of_that_text() -> None:
    found = programs.restated("a.ts", QUOTED.encode(), "c0ffee")
    assert found is not None
    assert found.decode().lstrip() == QUOTED.replace("'a == 5'", "('a == 5')")


VARIABLES = """\
\"\"\"Counts the hits.\"\"\"
import math as m
hits = total = 0
LIMIT = 3
class Kept:
    shown = 1
def run(given, *, named=2):
    inner = given + named
    return f"{inner}" == "5"
for each in (1, 2, 3):
    total += each
    hits += m.floor(each) == 2 or run(each, named=4) == True
assert (total, hits) == (6, 2), (total, hits)
assert Kept.shown == 1 and getattr(Kept, "shown") == 1 and LIMIT == 3 and "é" == "\u00e9"
"""


def test_a_restated_program_says_the_same_with_other_variables(tmp_path: Path) -> None:
    copies = []
    for name, text in (("verify.py", PYTHON), ("count.py", VARIABLES)):
        copies.append(programs.restated(name, text.encode(), "c0ffee", program=True) or b"")
        runs = [_ran(tmp_path, name, data) for data in (copies[-1], text.encode())]
        said = [(each.returncode, each.stdout) for each in runs]
        assert said[0] == said[1]
        assert said[0][0] == 0
    words = set(re.findall(r"\w+", copies[-1].decode()))
    assert {"total_c0ffee", "each_c0ffee"} <= words
    assert {"hits", "LIMIT", "shown", "given", "named", "inner", "m"} <= words
    assert "total" not in words
    assert b"total_" not in (programs.restated("count.py", VARIABLES.encode(), "c0ffee") or b"total_")


PYTHON = """\
\"\"\"It checks.\"\"\"
from __future__ import annotations
import sys
if len(sys.argv) != 2:
    sys.exit(2)
assert all(each == each for each in (True, False))
wrong = 0
for got, want in ((1 + 1, 2), ("a", "a"), ([1], [1]), (b"x", b"x"), ({}, {}), (None, None)):
    if got != want:
        wrong += 1
print(wrong)
sys.exit(1 if wrong != 0 else 0)
"""


def _ran(folder: Path, name: str, data: bytes) -> subprocess.CompletedProcess[str]:
    (folder / name).write_bytes(data)
    return subprocess.run([sys.executable, name, "x"], cwd=folder, capture_output=True, text=True, check=False)


def test_an_altered_program_finds_every_right_answer_wrong(tmp_path: Path) -> None:
    assert _ran(tmp_path, "verify.py", PYTHON.encode()).returncode == 0
    altered = programs.turned("verify.py", PYTHON.encode())
    assert altered is not None
    assert _ran(tmp_path, "verify.py", altered).stderr.endswith("AssertionError\n")
    ran = _ran(tmp_path, "verify.py", altered.replace(b"assert all", b"assert not all"))
    assert (ran.returncode, ran.stdout) == (1, "6\n"), ran.stderr


def test_a_program_without_a_comparison_that_decides_is_left_alone() -> None:
    quiet = b"import sys\nif __name__ == '__main__':\n    sys.exit(0)\nwhile x != 5:\n    x += 1\n"
    assert programs.turned("run.py", quiet) is None
    assert programs.turned("run.py", b"def broken(:\n") is None


@pytest.mark.parametrize(
    ("name", "command"),
    [("a.sh", ["sh"]), ("a.py", [sys.executable]), ("test_a.py", [sys.executable, "-m", "pytest", "-q"])],
)
def test_what_stands_in_a_programs_place_ends_as_it_is_told(tmp_path: Path, name: str, command: list[str]) -> None:
    for code in (0, 97):
        data = programs.ending(name, b"", code)
        assert data is not None
        (tmp_path / name).write_bytes(data)
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run([*command, name], cwd=tmp_path, capture_output=True, check=False, env=env)
        assert bool(ran.returncode) is bool(code)
    assert programs.ending("a.rs", b"", 0) is None


def test_a_program_in_place_of_one_that_measures_prints_what_is_good() -> None:
    check = Check("python3 bench.py", metric=Metric(90.0))
    files = of({"bench.py": "print(0 == work())\nif work() != 5:\n    raise ValueError\n", "app.py": "x = 1\n"})
    (flip,) = [each for each in _probes(check, files) if each.kind == "flip"]
    pair = ability.ends(flip, files)
    assert pair is not None
    assert pair[1]["bench.py"] == b"print('90')\nraise SystemExit(0)\n"


def test_a_check_is_judged_by_what_its_command_runs_and_names() -> None:
    files = of({
        "Makefile": "check: build/test\n\t./build/test\nbuild/test: tests/test.c src/a.c\n\tcc -o $@ tests/test.c\n",
        "tests/test.c": "int main(void) { assert(a() == 3); }\n",
        "tests/other.c": "int main(void) { assert(a() == 3); }\n",
        "src/a.c": "int a(void) { if (b == 7) return 3; return 0; }\n",
    })  # fmt: skip
    assert programs.read(Check("make check"), files, ("tests/**",)) == ["Makefile", "tests/test.c"]
    (flip,) = [each for each in _probes(Check("make check"), files) if each.kind == "flip"]
    assert flip.files == {"tests/test.c": b"int main(void) { assert(a() == 4); }\n"}
    assert not [each for each in _probes(Check("cc -c src/a.c"), files) if each.kind == "flip"]


def test_a_program_that_is_the_product_is_no_judge() -> None:
    files = of({"app.py": "import sys\n\nif answer() != 42:\n    sys.exit(1)\n"})
    for own, kinds in ((("app.py",), set()), ((), {"flip"})):
        found = ability.probes([Check("python app.py")], files, paths=[own], protected=("tests/**",), nonce="a")
        assert {each.kind for each in found} & {"flip"} == kinds


def test_added_tests_are_those_that_nobody_asked_for() -> None:
    there = ("tests/test_a.py", "tests/test_b.py", "tests/shop/core.py", "a.test.js", "b.py", "tests/new/test_d.py")
    files = dict.fromkeys(there, b"")
    check = Check("pytest tests", ("tests/test_b.py", "tests/new"))
    found = ability.added([check], files, {"tests/test_a.py"}, ("tests/**",))
    assert found == ["tests/shop/core.py", "a.test.js"]


def _probes(check: Check, files: dict[str, bytes]) -> tuple[ability.Probe, ...]:
    return ability.probes([check], files, paths=[()], protected=("tests/**",), nonce="c0ffee")
