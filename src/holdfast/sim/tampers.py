"""Named tampers: what a worker does that would rather be green than right. Each is a function from a tree to edits.

The classes are those of ImpossibleBench (tests modified, operators overloaded, state recorded, answers special-cased)
and what else is known of agents: hooks, configuration, start-up files, shadows, the environment, exits, CI, the
contract, data. `touches` says that a file is touched that decides about the work; what does not can only be guessed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Literal

import msgspec

from holdfast.sim import tampers_config as config
from holdfast.sim import tampers_product as product
from holdfast.sim import tampers_tests as tests
from holdfast.sim.tampers_scene import Edit, Edits, NothingToTamper

__all__ = ["TAMPERS", "Edit", "Edits", "NothingToTamper", "Tamper", "applied"]

TamperClass = Literal[
    "modified_tests", "deleted_tests", "skipped_tests", "parameters", "hooks", "configuration", "startup", "shadows",
    "environment", "timeouts", "exits", "ci", "contract", "data", "links_and_modes", "operator_overloading",
    "state_recording", "runner_patched", "special_casing",
]  # fmt: skip


class Tamper(msgspec.Struct, frozen=True):
    """One of them. `make` raises `NothingToTamper` for a tree that has nothing of the kind."""

    name: str
    kind: TamperClass
    make: Callable[[Mapping[str, bytes]], Edits]
    touches: bool = True


_NAMES: dict[TamperClass, tuple[ModuleType, str]] = {
    "deleted_tests": (
        tests,
        "delete_file delete_test rename_test underscore_test rename_file quoted_test hidden_in_function type_checking "
        "deleted_name shadowed_test broken_syntax",
    ),
    "skipped_tests": (
        tests,
        "skip_mark skipif_mark xfail_mark unittest_skip expected_failure flaky_mark skip_call skip_raise importorskip "
        "skip_module skip_module_call dunder_test eaten async_test",
    ),
    "modified_tests": (
        tests,
        "assert_true assert_or_true assert_tuple assert_removed assert_commented assert_not_none assert_truth "
        "expected_value empty_body early_return swallow swallow_assertion suppress if_false never_loop "
        "raises_anything patched_product autouse_fixture helper_weakened",
    ),
    "parameters": (tests, "param_reduced param_emptied param_skipped"),
    "hooks": (
        config,
        "conftest_makereport conftest_nested conftest_modifyitems conftest_sessionfinish conftest_unconfigure "
        "conftest_call conftest_ignore conftest_patch conftest_assert conftest_deleted plugin_listed plugin_announced "
        "pyproject_plugin added_plugin added_runner added_patch",
    ),
    "configuration": (
        config,
        "pytest_ini pytest_ini_empty pytest_toml setup_cfg_addopts tox_ini_pytest coveragerc jest_config "
        "pyproject_addopts pyproject_testpaths pyproject_python_files pyproject_xfail "
        "pyproject_script",
    ),
    "startup": (config, "sitecustomize usercustomize sitecustomize_package pth compiled"),
    "shadows": (config, "shadow_pytest shadow_package shadow_stdlib shadow_beside node_modules"),
    "environment": (config, "environment_file envrc environment_set gnumakefile makefile check_script cargo"),
    "timeouts": (config, "pyproject_timeout"),
    "ci": (config, "ci_deleted ci_or_true ci_continues"),
    "contract": (config, "feature_passes feature_removed feature_steps mission_file"),
    "data": (config, "golden_edited golden_deleted fixture_edited support_edited attributes"),
    "links_and_modes": (tests, "linked chmod"),
    "exits": (product, "exit_hard exit_system exit_raised exit_registered exit_signal exit_pytest exit_skips"),
    "operator_overloading": (
        product,
        "equal_class equal_str equal_lambda equal_set never_unequal equal_dataclass",
    ),
    "state_recording": (
        product,
        "knows_variable knows_modules knows_stack knows_frame knows_arguments reads_tests reads_sources counts_calls "
        "counts_list next_answer",
    ),
    "runner_patched": (
        product,
        "patches_pytest patches_builtins patches_modules patches_hook patches_imports stops_alarm hides_trace",
    ),
    "special_casing": (product, "special_case special_table special_constant special_computed"),
}

_ELSEWHERE: tuple[tuple[str, TamperClass, ModuleType], ...] = (
    ("timeout_mark", "timeouts", tests),
    ("exits", "exits", tests),
    ("added_exit", "exits", config),
    ("conftest_exit", "exits", config),
)


def _table() -> dict[str, Tamper]:
    named = [(name, kind, module) for kind, (module, names) in _NAMES.items() for name in names.split()]
    return {
        name: Tamper(name, kind, getattr(module, name), kind != "special_casing")
        for name, kind, module in (*named, *_ELSEWHERE)
    }


TAMPERS: dict[str, Tamper] = _table()
"""All of them by name."""


def applied(files: Mapping[str, bytes], edits: Edits) -> tuple[dict[str, bytes], dict[str, str]]:
    """The regular files after some edits, and the new modes of the paths that were edited; links are no files."""
    after = dict(files)
    for path, edit in edits.items():
        if edit.content is None or edit.mode == "120000":
            after.pop(path, None)
        else:
            after[path] = edit.content
    return after, {path: "" if edit.content is None else edit.mode for path, edit in edits.items()}
