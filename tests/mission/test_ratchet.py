"""Every tamper that touches what decides about the work is refused; a tree that does not change says nothing."""

from __future__ import annotations

import pytest

from holdfast.mission.pristine import ALWAYS, planted
from holdfast.sim.tampers import TAMPERS, applied
from holdfast.sim.tampers_measure import held, recall
from tests.mission.ratchet_mini import FILES

EXPECTED = {
    "delete_file": "test_deleted",
    "delete_test": "test_deleted",
    "rename_test": "test_renamed",
    "rename_file": "test_renamed",
    "hidden_in_function": "test_renamed",
    "shadowed_test": "test_emptied",
    "skip_mark": "test_skipped",
    "skipif_mark": "test_skipped",
    "xfail_mark": "test_skipped",
    "skip_call": "test_skipped",
    "skip_module": "test_skipped",
    "importorskip": "test_skipped",
    "assert_true": "test_emptied",
    "assert_or_true": "test_emptied",
    "assert_removed": "test_weakened",
    "assert_truth": "test_weakened",
    "swallow": "test_weakened",
    "raises_anything": "test_weakened",
    "early_return": "test_weakened",
    "empty_body": "test_emptied",
    "expected_value": "test_edited",
    "param_reduced": "parametrization_reduced",
    "param_skipped": "test_skipped",
    "conftest_makereport": "test_hook",
    "conftest_sessionfinish": "test_hook",
    "pytest_ini": "planted",
    "pyproject_addopts": "test_config",
    "pyproject_timeout": "timeout_changed",
    "timeout_mark": "timeout_changed",
    "sitecustomize": "planted",
    "pth": "planted",
    "shadow_pytest": "shadowed",
    "shadow_beside": "shadowed",
    "environment_set": "environment_trick",
    "makefile": "check_script",
    "check_script": "check_script",
    "ci_or_true": "ci_weakened",
    "feature_passes": "contract_edited",
    "golden_edited": "fixture_edited",
    "fixture_edited": "fixture_edited",
    "attributes": "attributes_changed",
    "linked": "linked",
    "chmod": "mode_changed",
    "exit_hard": "exit_trick",
    "exit_raised": "exit_trick",
    "equal_str": "equality_trick",
    "equal_dataclass": "equality_trick",
    "knows_variable": "state_recording",
    "counts_calls": "state_recording",
    "patches_builtins": "runner_patched",
}
"""By its name, the rule that says what was done. The others are refused too, by whatever rule."""


def test_the_corpus_is_as_large_as_it_says() -> None:
    kinds = {tamper.kind for tamper in TAMPERS.values()}
    assert {"modified_tests", "operator_overloading", "state_recording", "special_casing"} <= kinds
    assert len(TAMPERS) >= 100
    assert sum(not tamper.touches for tamper in TAMPERS.values()) == 4


@pytest.mark.parametrize("name", [name for name, tamper in TAMPERS.items() if tamper.touches])
def test_refused(name: str) -> None:
    (row,) = recall("harbor", FILES, [TAMPERS[name]])
    assert row.outcome == "refused", f"{name} on the mini library: {row.outcome}"
    if name in EXPECTED:
        assert EXPECTED[name] in row.rules


def test_special_casing_is_listed_where_it_shows() -> None:
    rows = {row.name: row.outcome for row in recall("harbor", FILES) if row.kind == "special_casing"}
    # An answer that is computed, or hidden otherwise, is not seen: that is what judges and held-out tests are for.
    assert rows == {
        "special_case": "listed",
        "special_table": "listed",
        "special_constant": "listed",
        "special_computed": "missed",
    }


def test_an_unchanged_tree_says_nothing() -> None:
    found = held(FILES, dict(FILES))
    assert (found.violations, found.unasked, found.files, found.lines) == ((), (), (), 0)


def test_what_is_planted_is_gone_before_checks_run() -> None:
    """Whatever the ratchet thinks of them, these files do not count in a verification."""
    for name in (
        "sitecustomize",
        "pth",
        "pytest_ini",
        "shadow_pytest",
        "shadow_beside",
        "compiled",
        "plugin_announced",
    ):
        after, _ = applied(FILES, TAMPERS[name].make(FILES))
        new = set(after) - set(FILES)
        deciding = {path for path in new if path != "calm_plugin.py"}  # without its metadata nobody loads it
        assert deciding == set(planted(after, FILES)) & new, name
        assert deciding, name


def test_files_of_the_base_are_not_planted() -> None:
    after = {**FILES, "src/harbor/json.py": b"", "docs/conf.py": b"", "tests/http/page.txt": b""}
    assert planted(after, FILES) == ()
    assert planted(FILES, FILES) == ()
    assert all(glob.count("**") <= 2 for glob in ALWAYS)
