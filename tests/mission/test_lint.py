"""What the words of a contract, and the end of a run, show: sentence by sentence, command by command."""

from __future__ import annotations

import ast

import pytest

from holdfast.facts.mission import Check, Criterion, Item, Metric
from holdfast.kinds.mission.check.ability.probes import GARBAGE, mutant
from holdfast.kinds.mission.contract.commands import absent, cannot_fail, missing_tests
from holdfast.kinds.mission.contract.contents import SLUG_LENGTH, slug
from holdfast.kinds.mission.contract.formats.files import read_contract, write_back
from holdfast.kinds.mission.lint import (
    Finding,
    Run,
    base_findings,
    merged,
    mutants_for,
    passes,
    seen_to_fail,
    vague,
)


@pytest.mark.parametrize(
    "sentence",
    [
        "An answer comes fast enough.",
        "Errors are handled properly.",
        "Dates, times, etc. are understood.",
        "The page is user-friendly.",
        "It works well with large files.",
        "Names are validated as needed.",
        "The layout looks good on a phone.",
        "Memory is used efficiently.",
        "Settings are stored in an appropriate place.",
        "It behaves as expected.",
        "First it greets. Then it says goodbye, and so on.",
        "Reads 3 formats: JSON, TOML and more.",
    ],
)
def test_what_each_reader_answers_otherwise_is_vague(sentence: str) -> None:
    assert vague(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "An answer comes in 200 ms, which is fast.",
        "It is faster than the release before.",
        "`git merge --ff-only` does a fast-forward.",
        "The word 'properly' is highlighted.",
        "The title says “User friendly”.",
        "A proper subset is refused.",
        "The quick start section has one command.",
        "`sort -n` is as fast as before: `make bench` shows it.",
        "The button reads \"Works well\".",
        "Typecheck passes",
        "An empty list gives 0.",
        "The nice value of the process is kept.",
        "Robots are greeted.",
        "",
    ],
)  # fmt: skip
def test_what_is_exact_is_not(sentence: str) -> None:
    assert vague(sentence) == ""


@pytest.mark.parametrize(
    "command",
    [
        "pytest || true", "pytest || :", "pytest || exit 0", "pytest; exit 0", "pytest; true", "true", "exit 0",
        "echo done", "pytest | tee log.txt", "npm test | tail -n 3", "pytest --collect-only -q", "pytest --co tests",
        "make test &", "pytest\ntrue", "jest --listTests",
    ],
)  # fmt: skip
def test_commands_that_cannot_fail(command: str) -> None:
    assert cannot_fail(Check(command))


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q", "test -f a && pytest", "a || b", "set -o pipefail; pytest | tee log.txt", "run | grep -q x",
        "sh -c 'true' && pytest", "python -c 'print(1)'", "pytest -k 'not true'",
        "echo x | python prog.py | diff - out", "make test & wait $!",
    ],
)  # fmt: skip
def test_commands_that_can(command: str) -> None:
    assert cannot_fail(Check(command)) == ""


def test_a_metric_may_end_with_a_pipe() -> None:
    assert cannot_fail(Check("python bench.py | tail -n 1", metric=Metric(1.0))) == ""


@pytest.mark.parametrize(
    ("command", "exit_code", "output", "own", "found"),
    [
        ("frob -x", 127, "bash: line 1: frob: command not found", (), "`frob` was not found"),
        ("./run.sh", 127, "bash: line 1: ./run.sh: No such file or directory", (), "`./run.sh` was not found"),
        ("./run.sh", 127, "bash: line 1: ./run.sh: No such file or directory", ("run.sh",), ""),
        ("pytest a.py", 4, "ERROR: file or directory not found: a.py\n", (), "pytest does not find `a.py`"),
        ("pytest a.py::x", 4, "ERROR: not found: /workspace/a.py::x\n", (), "pytest does not find `a.py::x`"),
        ("pytest a.py::x", 4, "ERROR: found no collectors for /workspace/a.py::x\n", (), ""),
        ("pytest -k x", 5, "3 deselected", (), "pytest finds no test in it"),
        ("pytest", 1, "1 failed", (), ""),
        (
            "python t.py",
            2,
            "python: can't open file '/workspace/t.py': [Errno 2]",
            (),
            "the script `t.py` does not exist",
        ),
        ("sh t.sh", 2, "sh: 0: cannot open t.sh: No such file", (), "the script `t.sh` does not exist"),
        ("make x", 2, "make: *** No rule to make target 'x'.  Stop.", (), "make has no target `x`"),
        ("make x", 2, "make: *** No rule to make target 'x'.  Stop.", ("Makefile",), ""),
        ("npm run x", 1, 'npm error Missing script: "x"', (), "package.json has no script `x`"),
        ("python -m pytest", 1, "python: No module named pytest", (), "the module `pytest` is not installed"),
        ("python -m todo", 1, "python: No module named todo", (), ""),
        ("python -m unittest t.x", 1, "No module named 't.x'", (), "unittest does not find `t.x`"),
        ("python -m unittest t.x", 1, "module 'lib' has no attribute 'y'", (), ""),
        ("python -m unittest", 0, "Ran 0 tests in 0.000s\n\nOK", (), "unittest finds no test in it"),
        ("grep -q x f", 0, "f: not found", (), ""),
    ],
)
def test_what_a_run_says_is_not_there(
    command: str, exit_code: int, output: str, own: tuple[str, ...], found: str
) -> None:
    assert absent(Check(command), exit_code, output, own) == found


def test_tests_that_are_named_and_not_there() -> None:
    files, protected = {"tests/a.py": 1}, ("tests/**",)
    check = Check("pytest ./tests/a.py::x tests/b.py src/new.py -c tests/c.ini", ("tests/d.py::y[1]",))
    assert missing_tests(check, files, protected, ()) == ["tests/b.py", "tests/c.ini", "tests/d.py"]
    assert missing_tests(check, files, protected, ("tests/**",)) == []
    assert missing_tests(Check("cd sub && pytest tests/b.py"), files, protected, ()) == []


# --- runs ------------------------------------------------------------------------------------------

CHECK = Check("pytest -q")
DUE, GUARD = Criterion("a.check", "", CHECK), Criterion("a.guard", "", CHECK, guard=True)
ITEM = Item("a", "A", criteria=(DUE, GUARD))
PASS, FAIL = Run(0, "1 passed"), Run(1, "1 failed")


def kinds(criterion: Criterion, run: Run) -> list[str]:
    """What a run at the base shows."""
    return [each.kind for each in base_findings(ITEM, criterion, run)]


def test_what_is_due_fails_at_the_base_and_a_guard_passes() -> None:
    assert (kinds(DUE, FAIL), kinds(DUE, PASS)) == ([], ["already_passes"])
    assert (kinds(GUARD, PASS), kinds(GUARD, FAIL)) == ([], ["guard_fails"])
    assert kinds(DUE, Run(None, "", timed_out=True)) == ["hangs"]
    (marked,) = base_findings(ITEM, DUE, PASS, marked=True)
    assert marked.level == "warning"


def test_a_metric_passes_by_its_number() -> None:
    check = Check("bench", metric=Metric(0.9))
    said = [passes(check, Run(code, text)) for code, text in ((0, "score 0.95"), (0, "0.5"), (1, "0.95"), (0, "none"))]
    assert said == [True, False, False, False]


def test_what_was_seen_to_fail_can_fail() -> None:
    said = Finding("cannot_fail", "error", "a", "its last part succeeds", "a.check")
    passed = Finding("already_passes", "error", "a", "passes", "a.check")
    assert merged([said], [], {"a.check"}) == []
    assert merged([said], [passed, said], set()) == [said]
    assert seen_to_fail(CHECK, FAIL)
    assert not seen_to_fail(Check("pytest --collect-only"), FAIL)


def test_which_mutants_convict() -> None:
    assert mutants_for(Check("python -m pytest -q")) == ("hollow",)
    assert mutants_for(Check("ruff check .")) == ("hollow", "broken", "empty")
    assert mutants_for(Check("! grep -rn TODO src")) == ()


SOURCE = b'"""Doc."""\nX = 1\n\n\ndef f(a):\n    return a\n\n\nclass C:\n    async def g(self):\n        return 1\n'


def test_in_a_hollow_tree_functions_raise_and_names_stay() -> None:
    found = mutant("a.py", SOURCE, "hollow")
    assert found is not None
    space: dict[str, object] = {}
    exec(compile(ast.parse(found), "a", "exec"), space)
    function = space["f"]
    assert callable(function)
    with pytest.raises(NotImplementedError):
        function(1)
    assert space["X"] == 1
    assert mutant("bad.py", b"def f(:", "hollow") == b"def f(:"
    assert mutant("run.sh", b"echo", "hollow") == mutant("run", b"#!/bin/sh", "hollow") == GARBAGE
    assert mutant("data.csv", b"1", "hollow") is None
    assert mutant("setup.cfg", b"[x]", "hollow") == b"[x]"


def test_a_broken_tree_cannot_be_read_and_an_empty_one_is_not_there() -> None:
    assert mutant("a.py", SOURCE, "broken") == mutant("a.json", b"{}", "broken") == GARBAGE
    assert [mutant(path, b"x", "empty") for path in ("a.py", "Makefile", "README.md")] == [None] * 3


# --- ids and marks ---------------------------------------------------------------------------------


def test_ids_are_short_and_told_apart() -> None:
    long = "The tool prints each page of the manual in as many columns as fit on the"
    assert len(slug(f"{long} left")) <= SLUG_LENGTH
    assert slug(f"{long} left") != slug(f"{long} right")
    assert slug("Ein Gruß für Zoë") == "ein-gru-fur-zoe"
    assert slug("你好世界") != slug("再见")


def test_a_mark_that_is_right_is_left_as_it_was_written() -> None:
    text = b"- [X] one\n- [ ] two\n"
    contract = read_contract(text, "PLAN.md")
    assert write_back(text, contract, {"one.done"}) == text
