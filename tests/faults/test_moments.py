"""SIGKILL at random moments: brain, supervisor, both, inside a journal write, inside a commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.faults import deaths
from tests.faults.brains import Nursery
from tests.faults.deaths import Undisturbed
from tests.faults.lanes import none_broken, verdict
from tests.faults.trials import WAYS, many_lives, one_death
from tests.faults.victims import end_supervisors
from tests.log.processes import needs_strace

Calm = Callable[[bool], Undisturbed]
"""What a run looks like that nobody killed, with a sandbox or without."""


@pytest.fixture(scope="module")
def calm_of(tmp_path_factory: pytest.TempPathFactory, brains: Nursery) -> Calm:
    """Runs that nobody killed, one of each kind for all tests."""

    @cache
    def run(sandbox: bool) -> Undisturbed:
        base = tmp_path_factory.mktemp("calm")
        base.chmod(0o711)
        try:
            return deaths.undisturbed(base / "home", brains, sandbox=sandbox)
        finally:
            end_supervisors(base)

    return run


def many_deaths(
    base: Path, brains: Nursery, calm_of: Calm, way: str, seed: int, times: int, *, sandbox: bool = True
) -> None:
    """Die `times` times; every promise must hold each time."""
    calm = calm_of(sandbox)
    if way == "commit":
        calm = replace(calm, calls=deaths.count_calls(base / "count", brains, sandbox=sandbox))
    print(f"{way}: {times} deaths, seed {seed}, {calm.span_s:.2f} s undisturbed {calm.calls or ''}")

    def run(number: int) -> list[str]:
        return one_death(base, brains, WAYS[way], calm, f"{seed}-{number}", sandbox=sandbox)

    none_broken(verdict(run, range(times)), f"{way}, seed {seed}")


@needs_strace
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_random_moments(tmp_path: Path, brains: Nursery, calm_of: Calm, way: str) -> None:
    many_deaths(tmp_path, brains, calm_of, way, seed=1, times=2)


@pytest.mark.parametrize("way", ["brain", "both"])
def test_killed_at_random_moments_without_a_sandbox(tmp_path: Path, brains: Nursery, calm_of: Calm, way: str) -> None:
    many_deaths(tmp_path, brains, calm_of, way, seed=2, times=2, sandbox=False)


def many_sessions(base: Path, brains: Nursery, calm_of: Calm, seed: int, sessions: int) -> None:
    """Sessions that die again and again; every promise must hold of each."""
    calm = calm_of(True)

    def run(number: int) -> list[str]:
        return many_lives(base, brains, calm, f"{seed}-{number}", lives=8)

    none_broken(verdict(run, range(sessions)), f"again and again, seed {seed}")


def test_killed_again_and_again(tmp_path: Path, brains: Nursery, calm_of: Calm) -> None:
    many_sessions(tmp_path, brains, calm_of, seed=7, sessions=1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", [7, 8, 9])
def test_many_killed_again_and_again(tmp_path: Path, brains: Nursery, calm_of: Calm, seed: int) -> None:
    many_sessions(tmp_path, brains, calm_of, seed, sessions=30)


@needs_strace
@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [1, 3, 4, 5])
def test_killed_at_many_random_moments(tmp_path: Path, brains: Nursery, calm_of: Calm, way: str, seed: int) -> None:
    many_deaths(tmp_path, brains, calm_of, way, seed, times=20)


@needs_strace
@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [2, 6])
def test_killed_at_many_random_moments_without_a_sandbox(
    tmp_path: Path, brains: Nursery, calm_of: Calm, way: str, seed: int
) -> None:
    many_deaths(tmp_path, brains, calm_of, way, seed, times=20, sandbox=False)
