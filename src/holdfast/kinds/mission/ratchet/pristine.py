"""What has to be out of the way before checks run on a worker's tree (S25).

The protected files are grafted over the tree as they were, but for tests that are only more. That is not enough: a file
that nobody protected, because it did not exist, can decide what a check says. `planted` names those: settings and hooks
of runners, files in the place of a module or of a target of a build file. They are set aside, and refused, unless the
contract or the task names them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from holdfast.globs import matches
from holdfast.kinds.mission.check.judging import Judges
from holdfast.kinds.mission.ratchet.additions import last_name, parsed
from holdfast.kinds.mission.ratchet.scope_dependencies import declared
from holdfast.kinds.mission.ratchet.stdlib_names import STDLIB

ALWAYS = (
    # pytest and the interpreter read these before any test runs; a new pytest.ini alone hides all other configuration.
    "**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml",
    "**/sitecustomize.py", "**/usercustomize.py", "**/sitecustomize/**", "**/usercustomize/**", "**/*.pth",
    "**/*._pth", "**/pyvenv.cfg", "**/.coveragerc", "**/.pdbrc",
    # Compiled files are taken without a look at their source; metadata announces plug-ins.
    "**/__pycache__/**", "**/*.pyc", "**/*.pyo", "**/*.egg-info/**", "**/*.dist-info/**", "**/*.egg-link",
    # Variables for whoever loads them.
    "**/.env", "**/.env.local", "**/.env.test", "**/.env.test.local", "**/.envrc",
    # The same of other languages.
    "**/.mocharc*", "**/jest.config.*", "**/jest.setup.*", "**/vitest.config.*", "**/vitest.workspace.*",
    "**/karma.conf.*", "**/playwright.config.*", "**/cypress.config.*", "**/.npmrc", "**/.yarnrc*", "**/.pnp.*",
    "**/node_modules/**", "**/__mocks__/**", "**/.babelrc*", "**/babel.config.*", "**/.swcrc",
    "**/.cargo/config*", "**/rust-toolchain*", "**/go.work", "vendor/modules.txt", "**/.rspec", "**/phpunit.xml*",
    "**/*.runsettings", "**/CTestCustom.cmake",
)  # fmt: skip
"""Globs of what decides about checks and is hardly ever a product: as at the base, whatever the contract protects."""

STRUCTURE = ("**/__init__.py", "**/test_*.py", "**/*_test.py", "**/conftest.py", "**/*_test.go")
"""Files of a base that say what is a package, from where tests import, and what they import."""

ENVIRONMENT = {
    "PYTEST_ADDOPTS": "",
    "PYTEST_PLUGINS": "",
    "PYTHONSTARTUP": "",
    "PYTHONINSPECT": "",
    "NODE_OPTIONS": "",
    "PYTHONPYCACHEPREFIX": "/dev/null",  # no compiled file is read, whoever wrote it
}
"""Variables that every check gets. `PYTEST_DISABLE_PLUGIN_AUTOLOAD` is none of them: a suite may need its plug-ins,
and plug-ins come from the environment, which is not the worker's; those announced by a tree are removed."""

TOOLS = frozenset({
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "xdist", "pytest_asyncio",
    "pytest_cov", "pytest_timeout", "pytest_mock", "hypothesis", "coverage", "nose", "mock", "tox", "nox", "anyio",
    "ruff", "mypy", "pip", "setuptools", "wheel", "pkg_resources", "ward", "behave", "freezegun", "responses",
    "python", "make", "pytest_django", "pytest_subtests", "hamcrest", "assertpy", "sure", "expects", "nose2", "doctest",
})  # fmt: skip
"""Modules of test tools: one of these names in a tree stands before the real one."""

SUFFIXES = (".py", ".pyc", ".so", ".pyd")

_TAKEN = (TOOLS | STDLIB) - {"test", "this", "antigravity"}

_GO_HOOK = re.compile(rb"^func (?:TestMain\(|init\(\))", re.MULTILINE)


def planted(
    new: Mapping[str, bytes], before: Mapping[str, bytes], judges: Judges, own: Collection[str] = ()
) -> tuple[str, ...]:
    """New paths that decide what a check says, and that nobody asked for.

    `new` are the files that came after the base; `before` those of the base, or at least those of `STRUCTURE`. `own`
    are paths that somebody asked for.
    """
    tested = {_folder(path) for path in before if is_test_file(path) or path.endswith("_test.go")}
    globs = (*ALWAYS, *judges.settings)
    shadows = set(shadowing({*new, *before}, declared(before)))
    return tuple(
        sorted(
            path
            for path, content in new.items()
            if path not in own
            and (
                path in shadows
                or path in judges.taken
                or _decides(path, globs, tested)
                or _hooks(path, content, tested)
            )
        )
    )


def _decides(path: str, globs: Collection[str], tested: Collection[str]) -> bool:
    """Whether a runner reads a file by its name. A conftest.py with no older tests below it is a matter of new ones."""
    if path.rsplit("/", 1)[-1] == "conftest.py":
        folder = _folder(path)
        return any(not folder or f"{each}/".startswith(f"{folder}/") for each in tested)
    return matches(path, globs)


def _hooks(path: str, content: bytes, tested: Collection[str]) -> bool:
    """Whether a new file of tests does something to the tests that were there."""
    if path.endswith("_test.go"):
        return _folder(path) in tested and _GO_HOOK.search(content) is not None
    tree = parsed(content) if is_test_file(path) else None
    targets = [each for node in (tree.body if tree else ()) for each in getattr(node, "targets", ())]
    return any(last_name(each) == "pytest_plugins" for each in targets)


def shadowing(paths: Collection[str], more: Collection[str] = ()) -> list[str]:
    """Those of a tree's paths that would be imported instead of a module of the standard library, of a test tool, or of
    one of those named in `more`.
    """
    named = [path for path in paths if (name := _module(path)) in _TAKEN or (name and name in more)]
    if not named:
        return []
    packages = {_folder(path) for path in paths if path.endswith("/__init__.py")}
    roots = {"", "src", "lib"} | {_folder(path) for path in paths if is_test_file(path)}
    return sorted(path for path in named if (place := _place(path)) in roots and place not in packages)


def is_test_file(path: str) -> bool:
    """Whether pytest takes a file for tests, or for a part of its own, by its name."""
    name = path.rsplit("/", 1)[-1]
    return name == "conftest.py" or (name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _module(path: str) -> str:
    """The top-level name under which a file may be imported, empty for none."""
    if not path.endswith(SUFFIXES):
        return ""
    folder, _, file = path.rpartition("/")
    name = file.split(".", 1)[0]
    return folder.rpartition("/")[2] if name == "__init__" else name


def _place(path: str) -> str:
    """The folder from which a module or package is imported."""
    folder, _, file = path.rpartition("/")
    return _folder(folder) if file.startswith("__init__.") else folder
