"""What a hidden check is, and what may be told of one that failed."""

from __future__ import annotations

import pytest

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.kinds.mission.contract.amend import compare
from holdfast.kinds.mission.contract.protected import disclosed, half, names_hidden, unused
from holdfast.kinds.mission.lint import static_findings


def contract(*commands: str, hidden: tuple[str, ...] = ("tests/hidden/**", "spec/late.js")) -> Contract:
    criteria = tuple(Criterion(f"c{number}", "", Check(each)) for number, each in enumerate(commands))
    return Contract("g", (Item("i", "all", criteria=criteria),), hidden=hidden)


@pytest.mark.parametrize(
    ("command", "is_hidden"),
    [
        ("pytest tests/hidden/test_a.py::test_b", True),
        ("pytest -q tests/hidden", True),
        ("cd tests && pytest hidden/", True),
        ("python -m unittest tests.hidden.test_a", True),
        ("npx jest spec/late.js", True),
        ("go test ./tests/hidden/...", True),
        ("pytest -q", False),
        ("pytest tests", False),
        ("pytest tests/test_hidden.py", False),
        ("npx jest spec", False),
    ],
)
def test_a_check_is_hidden_when_it_names_what_is(command: str, is_hidden: bool) -> None:
    assert names_hidden(Check(command), contract()) is is_hidden
    assert not names_hidden(Check(command), contract(hidden=()))


PRODUCT = {
    "calc.py": b"class CalcError(Exception):\n    pass\n\n\ndef add(a, b):\n    return _own(a)\n\n\ndef _own(a): ...\n",
    "calc.js": b"function sum(a) {}\nconst mean = (a) => a;\n",
    "calc.go": b"package calc\n\nfunc Add(a int) int { return a }\n",
}


@pytest.mark.parametrize(
    ("output", "types", "names"),
    [
        ("E   AssertionError: assert 41 == 42\ncalc.py:2: in add\n", "AssertionError", "add"),
        ('  File "calc.py", line 2, in _own\ncalc.CalcError: 42\n', "CalcError", ""),
        ("TypeError: x\n    at sum (calc.js:1:2)\n    at Object.mean (calc.js:2:3)\n", "TypeError", "sum, mean"),
        ("panic: 42\n\nexample.com/calc.Add(0x2a)\n", "panic", "Add"),
        ("Secret42Error: the value\n    in expected_42\n  42 in test_x\n", "", ""),
    ],
)
def test_types_and_functions_of_the_product_are_told_and_nothing_else(output: str, types: str, names: str) -> None:
    said = disclosed(output, PRODUCT)
    assert said == (
        "A hidden check failed. Its output is not shown."
        + (f" Type: {types}." if types else "")
        + (f" Functions on the stack: {names}." if names else "")
    )
    assert "42" not in said


def test_hidden_files_that_no_check_names_are_an_error() -> None:
    assert unused(contract("pytest tests/hidden")) == ("spec/late.js",)
    found = static_findings(contract("pytest tests/hidden"), MissionPolicy())
    assert [(each.kind, each.level) for each in found if "hidden" in each.message] == [("unchecked", "error")]


def test_half_of_the_tests_that_checks_name_can_be_hidden() -> None:
    agreed = contract("pytest tests/test_a.py", "pytest tests/test_b.py", "pytest tests/test_c.py", hidden=())
    written = ["feature_list.json", "tests/test_a.py", "tests/test_b.py", "tests/test_c.py", "tests/test_d.py"]
    assert half(agreed, written) == ["tests/test_b.py"]


def test_less_hidden_is_weaker() -> None:
    before, after = contract("pytest tests/hidden"), contract("pytest tests/hidden", hidden=("tests/hidden/**",))
    assert compare(before, after).weaker == {"hidden spec/late.js": "no longer hidden"}
    assert compare(after, before).stricter == {"hidden spec/late.js": "now hidden"}
