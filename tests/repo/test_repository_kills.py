"""Killed at any moment: no ref without its objects, no ref between two commits, and the same work makes the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.repo.repositories import git, made
from tests.repo.repository_child import MAIN, files

ROOT = Path(__file__).parents[2]


@contextmanager
def child(base: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.repo.repository_child", str(base)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def settled(base: Path) -> None:
    """No git is at work there any more: those of a killed process end by themselves."""
    while any(os.fsencode(base) in environment for environment in _environments()):
        pass


def _environments() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            yield path.read_bytes()
        except OSError:
            continue  # ended meanwhile, or another user's


def until(process: subprocess.Popen[str], word: str, times: int = 1) -> list[str]:
    """Read lines until one begins with the word, so many times."""
    assert process.stdout is not None
    said: list[str] = []
    while sum(line.startswith(word) for line in said) < times:
        line = process.stdout.readline()
        assert line, f"it ended before it said {word!r}: {said}"
        said.append(line)
    return said[-1].split()


def whole(repository: Path) -> list[str]:
    """Everything that a ref leads to is there; returns the main line's steps, the newest first."""
    git(repository, "fsck", "--connectivity-only", "--no-dangling")
    if not git(repository, "for-each-ref", MAIN):
        return []
    subjects = git(repository, "log", "--first-parent", "--format=%s", MAIN).splitlines()
    steps = [line for line in subjects if line.startswith("merge ")]
    assert steps == [f"merge {number}" for number in reversed(range(len(steps)))]
    names = set(git(repository, "ls-tree", "-r", "--name-only", MAIN).splitlines())
    assert {path for step in range(len(steps)) for path in files(step)} <= names
    return steps


def test_killed_between_objects_and_ref(tmp_path: Path) -> None:
    repository = made(tmp_path / "repository")
    with child(tmp_path) as process:
        until(process, "moved", 2)
        wanted = until(process, "made")
        process.kill()  # it may have moved the ref, or not
        process.wait()
    settled(tmp_path)
    before = git(repository, "rev-parse", MAIN)
    steps = whole(repository)
    assert len(steps) in (2, 3)
    if len(steps) == 3:
        assert before == wanted[2]
        git(repository, "update-ref", MAIN, f"{MAIN}^1")  # as it is for one killed a moment earlier
    with child(tmp_path) as process:
        assert until(process, "made") == wanted
        assert until(process, "moved")[1:] == wanted[1:]
    assert len(whole(repository)) >= 3


def test_killed_at_random(tmp_path: Path) -> None:
    rounds(tmp_path, 8, seed=3)


@pytest.mark.faults
def test_killed_at_random_often(tmp_path: Path) -> None:
    rounds(tmp_path, 150, seed=4)


def rounds(base: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)
    repository = made(base / "repository")
    with child(base) as process:
        until(process, "making")
        began = monotonic()
        until(process, "moved", 2)
        step_s = (monotonic() - began) / 2  # as long as a step takes here and now
    settled(base)
    done: dict[str, str] = {}
    for _ in range(count):
        found = len(whole_quick(repository))  # before the child is there: it may merge while we look
        with child(base) as process:
            first = until(process, "making")
            assert int(first[1]) == found
            sleep(chance.uniform(0, 1.2 * step_s))  # the moment of the kill, not a wait for anything
            os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            said = process.stdout.read()
        settled(base)
        for line in said.splitlines():
            word, step, *commit = line.split()
            if word in ("made", "moved"):
                assert done.setdefault(step, commit[0]) == commit[0], "the same work made another commit"
        steps = whole(repository)
        assert len(steps) >= 2
        moved = [line.split() for line in said.splitlines() if line.startswith("moved")]
        assert not moved or len(steps) > int(moved[-1][1]), "a ref that was said to be moved is not"
    assert not list((repository / ".git/refs").rglob("*.lock"))


def whole_quick(repository: Path) -> list[str]:
    if not git(repository, "for-each-ref", MAIN):
        return []
    subjects = git(repository, "log", "--first-parent", "--format=%s", MAIN).splitlines()
    return [line for line in subjects if line.startswith("merge ")]
