"""Killed while a worker is opened: whoever takes over opens one, in a whole folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.facts.session import SessionCreated
from holdfast.facts.task import TaskStarted
from holdfast.log.sqlite import SqliteStore
from holdfast.log.verify import verify
from tests.brain.mission_stage import FILES
from tests.repo.repositories import made

ROOT = Path(__file__).parents[2]


def begun(base: Path, moment: str) -> subprocess.Popen[str]:
    """The driver, at work."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.brain.role_driver", str(base), moment],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("moment", ["half", "whole"])
async def test_a_brain_killed_between_the_checkout_and_the_log_leaves_nothing_that_counts(
    tmp_path: Path, moment: str
) -> None:
    made(tmp_path / "repository", FILES)
    for _ in range(2):
        driver = begun(tmp_path, moment)
        assert driver.stdout is not None
        assert driver.stdout.readline() == f"{moment}\n"
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    left = list((tmp_path / "made").iterdir())
    assert len(left) == 1  # the second began in the place of the first
    last = begun(tmp_path, "never")
    last.communicate(timeout=30)
    assert last.returncode == 0
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
