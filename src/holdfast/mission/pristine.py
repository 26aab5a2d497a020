"""What has to be out of the way before checks run on a worker's tree (S25).

The protected files are grafted over the tree as they were. That is not enough: a file that nobody protected, because it
did not exist, can decide what a check says. `ALWAYS` are globs to graft along with the protected ones, so that changed
ones are as before and new ones are gone; `planted` names the new files that no glob can tell; `ENVIRONMENT` is set for
every check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.mission.globs import matches
from holdfast.mission.ratchet_names import STDLIB

ALWAYS = (
    # pytest and the interpreter read these before any test runs; a new pytest.ini alone hides all other configuration.
    "**/conftest.py", "**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml",
    "**/sitecustomize.py", "**/usercustomize.py", "**/sitecustomize/**", "**/usercustomize/**", "**/*.pth",
    "**/*._pth", "**/pyvenv.cfg", "**/.coveragerc", "**/.pdbrc",
    # Compiled files are taken without a look at their source; metadata announces plug-ins.
    "**/__pycache__/**", "**/*.pyc", "**/*.pyo", "**/*.egg-info/**", "**/*.dist-info/**", "**/*.egg-link",
    # Variables for whoever loads them, and make's first choices before a Makefile.
    "**/.env", "**/.env.*", "**/.envrc", "GNUmakefile", "makefile",
    # The same of other languages.
    "**/.mocharc*", "**/jest.config.*", "**/jest.setup.*", "**/vitest.config.*", "**/vitest.workspace.*",
    "**/karma.conf.*", "**/.npmrc", "**/.yarnrc*", "**/.pnp.*", "**/node_modules/**", "**/.cargo/config*",
    "**/rust-toolchain*", "**/go.work", "**/.rspec",
    "**/.gitattributes",
)  # fmt: skip
"""Globs of what decides about checks and is never a product: as at the base, whatever the contract protects."""

ENVIRONMENT = {"PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": "", "PYTHONSTARTUP": "", "PYTHONINSPECT": "", "NODE_OPTIONS": ""}
"""Variables that every check gets. `PYTEST_DISABLE_PLUGIN_AUTOLOAD` is none of them: a suite may need its plug-ins,
and plug-ins come from the environment, which is not the worker's; those announced by a tree are removed."""

TOOLS = frozenset({
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "xdist", "pytest_asyncio",
    "pytest_cov", "pytest_timeout", "pytest_mock", "hypothesis", "coverage", "nose", "mock", "tox", "nox", "anyio",
    "ruff", "mypy", "pip", "setuptools", "wheel", "pkg_resources", "ward", "behave", "freezegun", "responses",
    "python", "make",
})  # fmt: skip
"""Modules of test tools: one of these names in a tree stands before the real one."""

SUFFIXES = (".py", ".pyc", ".so", ".pyd")

_TAKEN = (TOOLS | STDLIB) - {"test", "this", "antigravity"}


def planted(after: Iterable[str], before: Iterable[str] = ()) -> tuple[str, ...]:
    """Paths of a tree to remove before checks run: what came after the base and decides what a check says.

    `after` are the paths of the tree to check, `before` those of the base. What is in the base stays; whether it was
    changed is a matter of the graft.
    """
    old, now = set(before), set(after)
    shadows = set(shadowing(now)) - old
    return tuple(sorted(path for path in now - old if path in shadows or matches(path, ALWAYS)))


def shadowing(paths: Collection[str]) -> list[str]:
    """Those of a tree's paths that would be imported instead of a module of the standard library or of a test tool."""
    named = [path for path in paths if _module(path) in _TAKEN]
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
