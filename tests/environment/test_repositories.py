"""Three real repositories: set up once, found again at once, their suites green inside, no network in the work.

They leave the machine: see `rigs`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.environment.rigs import has, unreachable
from tests.environment.user_driver import tried
from tests.support.as_user import run_as_user

REPOSITORIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "node": ("# pass 3", ("npm", "node")),
    "python": ("Ran 2 tests", ("python3", "apt-get", "dpkg-deb")),
    "cmake": ("100% tests passed", ("cmake", "cc", "pkg-config", "apt-get", "dpkg-deb")),
}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.faults] if name == "python" else []) for name in REPOSITORIES]
)
def repository(request: pytest.FixtureRequest) -> str:
    """Its name. Skips where a tool is missing or the registries do not answer."""
    name = str(request.param)
    if reason := has(*REPOSITORIES[name][1]) or unreachable():
        pytest.skip(reason)
    return name


def holds(name: str, found: dict[str, Any]) -> None:
    """Set up once, found again at once, green both times, no way outside, the workspace as it was."""
    assert found["error"] == ""
    assert (found["cached"], found["same"]) == ([False, True], True)
    assert found["ms"][1] < found["ms"][0] / 5
    suite, network, again = found["outputs"]
    green = REPOSITORIES[name][0]
    assert green in suite
    assert green in again
    assert "FAILED" not in suite + again
    assert network.count("no way to") == 2, network
    assert found["kept"]
    assert not {"node_modules", ".venv", ".git"} & set(found["top"])
    set_up, cached = found["ms"]
    print(f"\n{name}: set up in {set_up:.0f} ms, found in {cached:.1f} ms, {found['bytes'] >> 10} KiB", end="")


async def test_a_repository_is_set_up_once_and_its_suite_runs(repository: str, tmp_path: Path) -> None:
    holds(repository, await tried(tmp_path, repository))


@pytest.mark.faults
def test_the_same_as_an_ordinary_user(repository: str, tmp_path: Path) -> None:
    holds(repository, run_as_user(tmp_path, "tests.environment.user_driver", repository))
    assert os.getuid() == 0


@pytest.mark.faults
def test_python_as_an_ordinary_user(tmp_path: Path) -> None:
    if reason := has(*REPOSITORIES["python"][1]) or unreachable():
        pytest.skip(reason)
    holds("python", run_as_user(tmp_path, "tests.environment.user_driver", "python"))
