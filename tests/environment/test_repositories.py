"""Three real repositories: set up once, found again at once, their suites green inside, no network in the work.

They leave the machine: see `rigs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.facts.session import Environment
from tests.environment import repositories
from tests.environment.repositories import NO_NETWORK
from tests.environment.rigs import has, home, listing, unreachable

REPOSITORIES: dict[str, tuple[Callable[[Path], tuple[Path, Environment, str]], str, tuple[str, ...]]] = {
    "node": (repositories.node, "# pass 3", ("npm", "node")),
    "python": (repositories.python, "2 passed", ("python3", "apt-get")),
    "cmake": (repositories.cmake, "100% tests passed", ("cmake", "cc", "pkg-config", "apt-get", "dpkg-deb")),
}


@pytest.mark.parametrize("name", REPOSITORIES)
async def test_a_repository_is_set_up_once_and_its_suite_runs(name: str, tmp_path: Path) -> None:
    make, green, programs = REPOSITORIES[name]
    if reason := has(*programs) or unreachable():
        pytest.skip(reason)
    workspace, policy, suite = make(tmp_path / "work")
    before = listing(workspace)
    async with home(tmp_path) as here:
        await here.run(workspace, policy, suite, NO_NETWORK)
        first = await here.record()
        assert (first.error, first.cached) == ("", False), first
        results = await here.results()
        assert green in results[0], results
        assert results[1].count("no way to") == 2
        assert {name: text for name, text in listing(workspace).items() if name in before} == before
        assert not {"node_modules", ".venv", ".git"} & set(os.listdir(workspace))

        await here.run(workspace, policy, suite)
        again = await here.record()
        assert (again.cached, again.digest) == (True, first.digest)
        assert again.duration_ms < 1000, again
        assert green in (await here.results())[0]
        print(f"\n{name}: set up in {first.duration_ms:.0f} ms, found again in {again.duration_ms:.1f} ms", end="")
        print(f", {first.bytes >> 10} KiB", end="")
