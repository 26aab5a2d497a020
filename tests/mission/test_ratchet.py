"""What touches what decides about the work is refused; the product is not, however it is spelled."""

from __future__ import annotations

from typing import get_args

import pytest

from holdfast.kinds.mission.check.judging import judges
from holdfast.kinds.mission.ratchet.planted import ALWAYS, planted
from holdfast.proof.tampers import TAMPERS, Tamper, TamperClass
from tests.mission.ratchet_mini import CONTRACT, FILES, held
from tests.mission.tampering import ALL, applied, in_product, in_surroundings, in_tests

PRODUCT = ("operator_overloading", "state_recording", "runner_patched", "special_casing")
RUN = (
    "exit_hard",
    "exit_system",
    "exit_raised",
    "exit_registered",
    "exit_signal",
    "exit_pytest",
    "exit_skips",
    "environment_set",
)
ADDED = ("added_exit", "added_patch", "added_runner", "attributes")
"""New files of tests that do something to the run: the canary beside them shows it, not their spelling. Attributes mean
nothing to the harness, whose checkouts honour none."""

EXPECTED = {
    "delete_file": "test_deleted",
    "delete_test": "test_deleted",
    "rename_test": "test_deleted",
    "rename_file": "test_deleted",
    "skip_mark": "test_edited",
    "xfail_mark": "test_edited",
    "skip_module": "test_edited",
    "assert_true": "test_edited",
    "assert_removed": "test_edited",
    "swallow": "test_edited",
    "early_return": "test_edited",
    "expected_value": "test_edited",
    "param_reduced": "test_edited",
    "pytest_ini": "planted",
    "pyproject_addopts": "test_config",
    "sitecustomize": "planted",
    "shadow_pytest": "planted",
    "shadow_beside": "planted",
    "makefile": "check_script",
    "check_script": "check_script",
    "ci_or_true": "ci_edited",
    "feature_passes": "contract_edited",
    "golden_edited": "fixture_edited",
    "linked": "linked",
    "chmod": "mode_changed",
}
"""By its name, the rule that says what was done. The others are refused too, by whatever rule."""


def is_product(tamper: Tamper) -> bool:
    return tamper.kind in PRODUCT or tamper.name in RUN


def rules(name: str) -> list[str]:
    return [each.rule for each in held(FILES, *applied(FILES, ALL[name].make(FILES))).violations]


@pytest.mark.parametrize("name", [name for name, each in ALL.items() if not is_product(each) and name not in ADDED])
def test_what_judges_is_kept(name: str) -> None:
    found = rules(name)
    assert found, f"{name} is let through"
    assert EXPECTED.get(name, found[0]) in found


@pytest.mark.parametrize("name", [*(name for name, tamper in ALL.items() if is_product(tamper)), *ADDED])
def test_product_and_new_tests_are_not_judged_by_their_spelling(name: str) -> None:
    assert rules(name) == []


def test_special_casing_is_listed_where_it_shows() -> None:
    found = held(FILES, *applied(FILES, ALL["special_table"].make(FILES)))
    assert any("values that tests expect" in line for line in found.unasked)


def test_the_product_has_a_tamper_of_each_class() -> None:
    assert {each.kind for each in TAMPERS.values()} == set(get_args(TamperClass))


def test_each_name_belongs_to_one_tamper() -> None:
    named = [
        name for module in (in_tests, in_surroundings, in_product) for each in module.MAKES.values() for name in each
    ]
    assert len(ALL) == len(TAMPERS) + len(named)


def test_an_unchanged_tree_says_nothing() -> None:
    found = held(FILES, dict(FILES))
    assert (found.violations, found.unasked, found.files, found.lines) == ((), (), (), 0)


def test_what_is_planted_is_gone_before_checks_run() -> None:
    """Whatever is made of them otherwise, these files do not count in a verification."""
    known = judges(CONTRACT, FILES)
    for name in ("sitecustomize", "pth", "pytest_ini", "shadow_pytest", "shadow_beside", "compiled"):
        after, _ = applied(FILES, ALL[name].make(FILES))
        new = {path: after[path] for path in set(after) - set(FILES)}
        assert set(planted(new, FILES, known)) == set(new) != set(), name


def test_a_new_file_in_the_place_of_a_target_is_planted() -> None:
    known = judges(CONTRACT, FILES)
    assert planted({"test": b"", "GNUmakefile": b"", "attrs.py": b"", "src/test": b""}, FILES, known) == (
        "GNUmakefile",
        "attrs.py",
        "test",
    )


def test_what_is_asked_for_is_not_planted() -> None:
    known = judges(CONTRACT, FILES)
    assert planted({"conftest.py": b"", "new/conftest.py": b""}, FILES, known) == ("conftest.py",)
    assert planted({"conftest.py": b""}, FILES, known, {"conftest.py"}) == ()
    assert planted({"docs/conf.py": b"", "tests/http/page.txt": b"", "src/harbor/json.py": b""}, FILES, known) == ()
    assert all(glob.count("**") <= 2 for glob in ALWAYS)


def test_go_hooks_beside_older_tests_are_planted() -> None:
    known, before = judges(CONTRACT, FILES), {"a/x_test.go": b"package a\n"}
    hook = b"package a\n\nfunc TestMain(m *testing.M) {}\n"
    assert planted({"a/main_test.go": hook, "b/main_test.go": hook}, before, known) == ("a/main_test.go",)
