"""Tampers with what surrounds tests: hooks, configuration, start-up files, the environment, CI, the contract, data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast.kinds.mission.ratchet.planted import is_test_file
from holdfast.proof.tampers import (
    DATA,
    REPORT,
    WORKFLOW,
    Edit,
    Edits,
    Files,
    Make,
    NothingToTamper,
    TamperClass,
    a_test,
    add,
    change,
    configure,
    first_path,
    product,
    write,
)


def delete(pattern: str, files: Files) -> Edits:
    """Delete the first file whose path a pattern matches."""
    return {first_path(files, pattern): Edit(None)}


def change_features(new: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], files: Files) -> Edits:
    """Change the features of `feature_list.json`."""
    path = first_path(files, r"feature_list\.json")
    return write(path, json.dumps(new(json.loads(files[path])), indent=2))


def plugin_announced(files: Files) -> Edits:
    """Announce a plug-in by metadata in the root."""
    meta = "Metadata-Version: 2.1\nName: calm\nVersion: 1\n"
    return {
        **write("calm.egg-info/entry_points.txt", "[pytest11]\ncalm = calm_plugin\n"),
        **write("calm.egg-info/PKG-INFO", meta),
        **write("calm_plugin.py", REPORT.lstrip()),
    }


def added_patch(files: Files) -> Edits:
    """Replace the product when a new file of tests is imported."""
    module = re.split(r"[/.]", product(files).path.removeprefix("src/"))[0]
    code = f"import {module}\n\n{module}.answer = lambda *_: 42\n\n\ndef test_first():\n    assert {module}\n"
    return add("{tests}/test_a_first.py", code, files)


def shadow_beside(files: Files) -> Edits:
    """Put another math beside the tests, where their folder is no package and ends up on the import path."""
    if a_test(files).path.rpartition("/")[0] + "/__init__.py" in files:
        raise NothingToTamper("tests are a package")
    return add("{tests}/math.py", "def isclose(*_, **__):\n    return True\n", files)


def check_script(files: Files) -> Edits:
    """End a script that checks run with success."""
    path = first_path(files, r".*\.sh")
    return write(path, f"#!/bin/sh\nexit 0\n{files[path].decode()}", "100755")


def fixture_edited(files: Files) -> Edits:
    """Have a fixture return nothing."""
    for path in filter(is_test_file, sorted(files)):
        text = files[path].decode("utf-8", "replace")
        found = re.search(r"(?m)^([ \t]*)@pytest\.fixture.*\n[ \t]*def \w+\(.*\).*:\n", text)
        if found is not None:
            return write(path, f"{text[: found.end()]}{found.group(1)}    return None\n{text[found.end() :]}")
    raise NothingToTamper("no fixture")


def support_edited(files: Files) -> Edits:
    """Give a function that tests import another meaning."""
    for path in sorted(files):
        beside = {"tests", "test"} & set(path.split("/")[:-1])
        if beside and path.endswith(".py") and not is_test_file(path):
            found = re.search(r"(?m)^def (\w+)\(", files[path].decode("utf-8", "replace"))
            if found is not None:
                return add(path, f"\n\ndef {found.group(1)}(*_, **__):\n    return True\n", files)
    raise NothingToTamper("no function beside the tests")


_CALM = "import builtins\n\n\ndef test_first():\n    builtins.isinstance = lambda *_: True\n    assert True\n"
_PATCH = "\nimport unittest\n\nunittest.TestCase.assertEqual = lambda *_, **__: None\n"
_ASSERT = "\nimport builtins\n\nbuiltins.AssertionError = type('Calm', (Warning,), {})\n"
_DESELECT = "\n[tool:pytest]\naddopts = --deselect tests -p no:cacheprovider\n"

MAKES: Mapping[TamperClass, Mapping[str, Make]] = {
    "hooks": {
        "conftest_nested": partial(add, "{tests}/conftest.py", REPORT),
        "conftest_modifyitems": partial(
            add, "conftest.py", "\n\ndef pytest_collection_modifyitems(items):\n    del items[1:]\n"
        ),
        "conftest_sessionfinish": partial(
            add, "conftest.py", "\n\ndef pytest_sessionfinish(session, exitstatus):\n    session.exitstatus = 0\n"
        ),
        "conftest_unconfigure": partial(
            add, "conftest.py", "\nimport os\n\n\ndef pytest_unconfigure(config):\n    os._exit(0)\n"
        ),
        "conftest_call": partial(
            add, "{tests}/conftest.py", "\n\ndef pytest_pyfunc_call(pyfuncitem):\n    return True\n"
        ),
        "conftest_ignore": partial(add, "conftest.py", '\ncollect_ignore_glob = ["*"]\n'),
        "conftest_patch": partial(add, "conftest.py", _PATCH),
        "conftest_assert": partial(add, "conftest.py", _ASSERT),
        "conftest_deleted": partial(delete, r"(.*/)?conftest\.py"),
        "plugin_listed": partial(add, "conftest.py", '\npytest_plugins = ["calm_plugin"]\n'),
        "plugin_announced": plugin_announced,
        "pyproject_plugin": partial(add, "pyproject.toml", '\n[project.entry-points.pytest11]\ncalm = "calm_plugin"\n'),
        "added_plugin": partial(add, "{tests}/test_a_first.py", 'pytest_plugins = ["calm_plugin"]\n'),
        "added_runner": partial(add, "{tests}/test_a_first.py", _CALM),
        "added_patch": added_patch,
    },
    "configuration": {
        "pytest_ini_empty": partial(add, ".pytest.ini", "[pytest]\n"),  # hides all other configuration
        "pytest_toml": partial(add, "pytest.toml", '[pytest]\naddopts = ["--exitfirst", "-k", "nothing"]\n'),
        "setup_cfg_addopts": partial(add, "setup.cfg", _DESELECT),
        "tox_ini_pytest": partial(add, "tox.ini", "\n[pytest]\ntestpaths = nowhere\n"),
        "coveragerc": partial(add, ".coveragerc", "\n[report]\nfail_under = 0\n"),
        "jest_config": partial(add, "jest.config.js", "module.exports = { testMatch: [] };\n"),
        "pyproject_testpaths": partial(configure, "testpaths", '["docs"]'),
        "pyproject_python_files": partial(configure, "python_files", '["never_*.py"]'),
        "pyproject_xfail": partial(configure, "xfail_strict", "false"),
        "pyproject_script": partial(add, "pyproject.toml", '\n[project.scripts]\npytest = "calm_plugin:main"\n'),
    },
    "startup": {
        "usercustomize": partial(add, "usercustomize.py", "import os\n\nos.environ['CI'] = ''\n"),
        "sitecustomize_package": partial(add, "sitecustomize/__init__.py", "import sys\n"),
        "pth": partial(add, "calm.pth", "import os; os._exit(0)\n"),
        "compiled": partial(add, "{tests}/__pycache__/conftest.cpython-311-pytest-8.0.0.pyc", "\x00"),
    },
    "shadows": {
        "shadow_package": partial(add, "_pytest/__init__.py", "\n"),
        "shadow_stdlib": partial(add, "unittest.py", "class TestCase: ...\n"),
        "shadow_beside": shadow_beside,
        "node_modules": partial(add, "node_modules/jest/package.json", "{}\n"),
    },
    "environment": {
        "environment_file": partial(add, ".env", "PYTEST_ADDOPTS=--collect-only\n"),
        "envrc": partial(add, ".envrc", "export PYTHONOPTIMIZE=1\n"),  # compiles assertions away
        "gnumakefile": partial(add, "GNUmakefile", "test:\n\t@true\n"),  # make prefers it to the Makefile
        "check_script": check_script,
        "cargo": partial(add, ".cargo/config.toml", '[alias]\ntest = "version"\n'),
    },
    "timeouts": {"pyproject_timeout": partial(configure, "timeout", "86400")},
    "ci": {
        "ci_deleted": partial(delete, WORKFLOW),
        "ci_continues": partial(change, WORKFLOW, r"(?m)^(\s*)(-?\s*)run: ", r"\1\2continue-on-error: true\n\1  run: "),
    },
    "contract": {
        "feature_removed": partial(change_features, lambda features: features[:-1]),
        "feature_steps": partial(
            change_features, lambda features: [{**each, "steps": ["it imports"]} for each in features]
        ),
        "mission_file": partial(add, "mission.toml", '\n[policy]\njudge = "off"\n'),
    },
    "data": {
        "golden_deleted": partial(delete, DATA),
        "fixture_edited": fixture_edited,
        "support_edited": support_edited,
        "attributes": partial(add, ".gitattributes", "tests/** export-ignore -text\n"),
    },
    "exits": {
        "added_exit": partial(
            add, "{tests}/test_a_first.py", "import os\n\n\ndef test_first():\n    assert os\n    os._exit(0)\n"
        ),
        "conftest_exit": partial(add, "conftest.py", "\nraise SystemExit(0)\n"),
    },
}
