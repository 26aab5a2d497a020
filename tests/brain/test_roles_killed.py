"""Killed while a worker is opened, or while its work is committed: whoever takes over makes what is missing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import RepoCommitted, TaskStarted
from holdfast.log.sqlite import SqliteStore
from holdfast.log.verify import verify
from tests.brain.mission_stage import FILES
from tests.brain.role_driver import DONE
from tests.repo.repositories import git, made
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


def begun(base: Path, moment: str) -> subprocess.Popen[str]:
    """The driver, at work."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.brain.role_driver", str(base), moment],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed(base: Path, moment: str) -> None:
    """Run the driver up to that moment, and kill it there."""
    driver = begun(base, moment)
    assert driver.stdout is not None
    assert driver.stdout.readline() == f"{moment}\n"
    driver.send_signal(signal.SIGKILL)
    driver.communicate()


def through(base: Path, moment: str) -> None:
    """Run the driver to its end."""
    driver = begun(base, moment)
    driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0


@pytest.mark.parametrize("moment", ["half", "whole"])
async def test_a_brain_killed_between_the_checkout_and_the_log_leaves_nothing_that_counts(
    tmp_path: Path, moment: str
) -> None:
    made(tmp_path / "repository", FILES)
    for _ in range(2):
        killed(tmp_path, moment)
    left = list((tmp_path / "made").iterdir())
    assert len(left) == 1  # the second began in the place of the first
    through(tmp_path, "never")
    clock = SystemClock()
    async with await SqliteStore.open(tmp_path / "log.db", workers=tmp_path / "workers", clock=clock) as store:
        rows = {row.name: row for row in await store.sessions()}
        assert sorted(rows) == ["mission", "worker core"]
        events = await store.read(rows["mission"].session_id)
        assert sum(isinstance(event.fact, TaskStarted) for event in events) == 1
        (first,) = await store.read(rows["worker core"].session_id)
        assert isinstance(first.fact, SessionCreated)
        folder = Path(first.fact.workspace.path)
        assert (await verify(store)).findings == ()
    assert [folder] == list((tmp_path / "made").iterdir())
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files == FILES


@pytest.mark.parametrize("moment", ["made", "pointed"])
async def test_a_brain_killed_while_it_commits_loses_no_work_and_reports_what_the_branch_has(
    tmp_path: Path, moment: str
) -> None:
    repository = made(tmp_path / "repository", FILES)
    killed(tmp_path, moment)
    through(tmp_path, "finish")
    clock = SystemClock()
    async with await SqliteStore.open(tmp_path / "log.db", workers=tmp_path / "workers", clock=clock) as store:
        rows = {row.name: row for row in await store.sessions()}
        mission = await store.read(rows["mission"].session_id)
        worker = await store.read(rows["worker core"].session_id)
    (report,) = [event.fact for event in mission if isinstance(event.fact, ChildFinished)]
    (committed,) = [event.fact for event in worker if isinstance(event.fact, RepoCommitted)]
    assert (report.status, report.commit) == ("done", committed.commit)
    assert git(repository, "rev-parse", "refs/heads/holdfast/demo/core") == committed.commit
    assert git(repository, "show", f"{committed.commit}:src/app/core.py").encode() + b"\n" == DONE
    assert git(repository, "rev-parse", f"{committed.commit}^") == git(repository, "rev-parse", "main")
