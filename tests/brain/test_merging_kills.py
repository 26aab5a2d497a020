"""SIGKILL around the main line: between its intent and its move, between that and the record, and in a check.

Real processes, log, repository and hands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import Settings
from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked, VerificationEnded, VerificationStarted
from holdfast.facts.task import MergeStarted, RepoMerged, RepoMoved
from holdfast.repo.git_repository import GitRepository
from tests.brain.merge_driver import MAIN, SESSION
from tests.repo.repositories import git, made, put
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

FAST = "grep -q done"
SLOW = "printf x >> marks; while [ ! -e go ]; do sleep 0.02; done; grep -q done"


async def branches(repo: Path, names: str) -> str:
    """A commit for each task, as the driver wants them."""
    out = []
    for name in names:
        git(repo, "checkout", "-q", "-b", f"work-{name}", "main")
        put(repo, {f"{name}.txt": b"done\n"})
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", name)
        out.append(f"{name}:{git(repo, 'rev-parse', 'HEAD')}:{git(repo, 'rev-parse', 'HEAD^{tree}')}")
    git(repo, "checkout", "-q", "main")
    return ",".join(out)


@contextmanager
def driver(home: Path, base: str, work: str, command: str, where: str) -> Iterator[subprocess.Popen[str]]:
    """A brain's process; ended with the block if it lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.brain.merge_driver", str(home), base, work, command, where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def said(process: subprocess.Popen[str]) -> str:
    """The next line it says."""
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line and process.stderr is not None:
        raise AssertionError(process.stderr.read()[-2_000:])
    return line


async def log_of(home: Path) -> list[Event]:
    """Everything in the mission's log."""
    async with open_runtime(Settings(home=str(home))) as runtime:
        return await runtime.store.read(SESSION)


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event.fact for event in events if isinstance(event.fact, kind)]


@pytest.mark.parametrize("where", ["before", "after"])
async def test_killed_around_the_move(where: str, tmp_path: Path, holdfast_home: Path) -> None:
    repo = made(tmp_path / "repo", {"a.txt": b"todo\n", "b.txt": b"todo\n"})
    base = git(repo, "rev-parse", "HEAD")
    work = await branches(repo, "ab")
    with driver(holdfast_home, base, work, FAST, where) as process:
        assert said(process) == where
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = await log_of(holdfast_home)
    (started,) = of(before, MergeStarted)
    assert not of(before, RepoMerged)
    assert git(repo, "rev-parse", MAIN) == (base if where == "before" else started.commit)
    with driver(holdfast_home, base, work, FAST, "-") as process:
        assert said(process) == "done"
    after = await log_of(holdfast_home)
    (merged,) = of(after, RepoMerged)
    assert merged.commit == started.commit == git(repo, "rev-parse", MAIN)
    assert merged.tasks == ("a", "b")
    assert not of(after, RepoMoved)
    assert of(after, CriterionChecked) == of(before, CriterionChecked)  # no verdict is asked for again
    assert git(repo, "status", "--porcelain") == ""


async def test_killed_in_a_check(tmp_path: Path, holdfast_home: Path) -> None:
    """The check goes on without its brain, and the next one takes its end: it ran once."""
    repo = made(tmp_path / "repo", {"a.txt": b"todo\n"})
    base = git(repo, "rev-parse", "HEAD")
    work = await branches(repo, "a")
    with driver(holdfast_home, base, work, SLOW, "-") as process:
        place = await checking(holdfast_home)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with driver(holdfast_home, base, work, SLOW, "-") as process:
        (place / "go").write_text("")
        assert said(process) == "done"
    events = await log_of(holdfast_home)
    (started,) = of(events, VerificationStarted)
    (checked,) = of(events, CriterionChecked)
    assert (checked.outcome, checked.runs, checked.key) == ("pass", 1, started.key)
    assert len(of(events, VerificationEnded)) == 1
    assert of(events, RepoMerged)
    assert not place.exists()
    assert not alive(holdfast_home)


async def test_killed_in_a_check_with_its_hands(tmp_path: Path, holdfast_home: Path) -> None:
    """Where the hands died too, the check runs again on a clean checkout."""
    repo = made(tmp_path / "repo", {"a.txt": b"todo\n"})
    base = git(repo, "rev-parse", "HEAD")
    work = await branches(repo, "a")
    with driver(holdfast_home, base, work, SLOW, "-") as process:
        place = await checking(holdfast_home)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for pid in alive(holdfast_home):
        os.kill(pid, signal.SIGKILL)
    (place / "marks").unlink()
    with driver(holdfast_home, base, work, SLOW, "-") as process:
        again = await checking(holdfast_home)
        assert (again / "marks").read_text() == "x"
        (again / "go").write_text("")
        assert said(process) == "done"
    events = await log_of(holdfast_home)
    one, two = of(events, VerificationStarted)
    assert one.verification_id == two.verification_id
    assert one.hands != two.hands
    (checked,) = of(events, CriterionChecked)
    assert (checked.outcome, checked.runs) == ("pass", 1)
    assert not alive(holdfast_home)
    assert await GitRepository(repo, tmp_path / "state").resolve(MAIN)


async def checking(home: Path) -> Path:
    """The checkout in which the check runs, once it does."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            for marks in (home / "workspaces").glob("vrf_*/marks"):
                if marks.read_text():
                    return marks.parent
            await anyio.sleep(0.01)


def alive(home: Path) -> list[int]:
    """Supervisors of hands of this home that run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if f"{home}/hands".encode() in words:
            found.append(int(pid))
    return found
