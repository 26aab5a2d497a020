"""A disk that fails under a worker with two sessions, at each write and sync in turn, and then works again.

The worker goes on, or ends with exit status 5; it never stays without serving. No event is lost, and no effect happens
twice.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from holdfast.app.home import is_served, open_home
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.log.base import Post
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.verify import Finding, verify
from tests.app.families import stands
from tests.app.terminal import Said, bash, ended, rows, script, spawn, turn

SESSIONS = ("a", "b")
EFFECTS = ("one", "two", "three")
LIMIT_S = 300.0
"""No outcome here takes so long, on any machine."""


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets the disk fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler here to build the failing disk with: apt install gcc")
    library = tmp_path_factory.mktemp("shim") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@dataclass
class Disk:
    """Homes with two sessions that are due, and workers on a disk that fails."""

    shim: Path
    folder: Path

    def home(self) -> Path:
        """The home of the next trial."""
        home = self.folder / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(self.folder / "template", home)
        for key in SESSIONS:
            (self.folder / f"work-{key}").mkdir(exist_ok=True)
            (self.folder / f"work-{key}" / "effects").unlink(missing_ok=True)
        return home

    def worker(self, at: int, for_ms: int, error: int = errno.EIO) -> subprocess.Popen[str]:
        """A worker whose disk fails from the call with that number on, for so long."""
        (self.folder / "calls").unlink(missing_ok=True)
        failing = {"FAIL_AT": at, "FAIL_MS": for_ms, "FAIL_WITH": error, "FAIL_LOG": self.folder / "calls"}
        return spawn("worker", env={"LD_PRELOAD": str(self.shim), **{name: str(is_) for name, is_ in failing.items()}})

    def calls(self) -> str:
        """A character for each write and sync of the latest worker: `X` for one that failed."""
        calls = self.folder / "calls"
        return calls.read_text() if calls.exists() else ""

    def effects(self) -> list[str]:
        """What the sessions did, in order."""
        files = [self.folder / f"work-{key}" / "effects" for key in SESSIONS]
        return [line for file in files if file.exists() for line in file.read_text().splitlines()]


@pytest.fixture
def disk(shim: Path, tmp_path: Path, holdfast_home: Path) -> Disk:
    """Two sessions of three effects each, opened and not begun."""
    anyio.run(_open_sessions, holdfast_home, tmp_path)
    holdfast_home.rename(tmp_path / "template")
    return Disk(shim, tmp_path)


async def _open_sessions(path: Path, folder: Path) -> None:
    home = open_home(path)
    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
        for key in SESSIONS:
            work = folder / f"work-{key}"
            work.mkdir()
            work.chmod(0o777)  # as root, tool calls run as another user
            said = [bash(f"echo {effect} >> effects") for effect in EFFECTS]
            agent = Agent(model=script(folder / f"{key}.json", *said, turn(text="done")), tools=("bash",))
            created = SessionCreated(goal="g", agent=agent, workspace=Workspace(str(work), isolation="none"), key=key)
            await store.post(Post(f"ses_{key}", "created", Draft(f"evt_{key}", "user:x", created)), create=True)


def finishes(home: Path, worker: subprocess.Popen[str]) -> tuple[bool, Said]:
    """Whether both sessions come to their end under this worker, and not it first; and what it said. It is ended."""
    end = SystemClock().monotonic_s() + LIMIT_S
    try:
        while stands(home) != {"done": len(SESSIONS)} and worker.poll() is None and SystemClock().monotonic_s() < end:
            time.sleep(0.02)
        still = worker.poll() is None
    finally:
        worker.terminate()
        said = ended(worker)
    finished = still and stands(home) == {"done": len(SESSIONS)}
    assert finished or not still, f"it serves, and nothing moves: {stands(home)}, {said}"
    return finished, said


def check(disk: Disk, home: Path) -> None:
    """Both sessions are done; each effect happened once; the log is whole."""
    assert stands(home) == {"done": len(SESSIONS)}
    assert disk.effects() == [*EFFECTS] * len(SESSIONS)
    ids = rows(home / "holdfast.db", "select count(*), count(distinct hash) from events")[0]
    assert ids[0] == ids[1]
    ends = rows(home / "holdfast.db", "select count(*) from events where type = 'agent.tool_result'")
    assert ends == [(len(EFFECTS) * len(SESSIONS),)]
    assert anyio.run(_findings, home) == ()


async def _findings(path: Path) -> tuple[Finding, ...]:
    home = open_home(path)
    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
        return (await verify(store)).findings


def trial(disk: Disk, at: int, for_ms: int, error: int = errno.EIO) -> str:
    """One failure; `back` when the worker went on, `gone` when it ended. Both must leave everything whole."""
    home = disk.home()
    back, said = finishes(home, disk.worker(at, for_ms, error))
    where = f"call {at}, {for_ms} ms, errno {error}: {said}"
    assert "Traceback" not in said.err, where
    if not back:
        assert said.code == 5, where
        assert not is_served(open_home(home)), where
        finished, next_one = finishes(home, spawn("worker"))
        assert finished, f"{where}; {next_one}"
    check(disk, home)
    return "back" if back else "gone"


def count(disk: Disk) -> int:
    """How many writes and syncs such a run makes when nothing fails."""
    assert trial(disk, 0, 0) == "back"
    return len(disk.calls())


def test_a_disk_that_fails_for_a_while_stops_no_session(disk: Disk) -> None:
    calls = count(disk)
    assert calls > 50
    points = [1 + number * (calls - 1) // 5 for number in range(6)]
    ends = {at: trial(disk, at, 300, errno.EIO if at % 2 else errno.ENOSPC) for at in points}
    assert list(ends.values()).count("back") >= 3, ends


def test_a_worker_whose_disk_stays_broken_ends_with_a_sentence(disk: Disk) -> None:
    home = disk.home()
    worker = disk.worker(60, 600_000)
    said = ended(worker, LIMIT_S).went(5)
    assert "X" in disk.calls()
    last = said.err.splitlines()[-1]
    assert last.startswith("holdfast worker: the disk under ")
    assert "This process gives up" in last
    assert not is_served(open_home(home))
    finished, _ = finishes(home, spawn("worker"))
    assert finished
    check(disk, home)


@pytest.mark.parametrize("which", ["files", "log"])
def test_a_file_system_without_locks_is_named(shim: Path, tmp_path: Path, which: str) -> None:
    home = tmp_path / "home"
    for command in (("ps", "--all"), ("run", "hello", "--model", script(tmp_path / "m.json", turn(text="done")))):
        env = {"LD_PRELOAD": str(shim), "NO_LOCKS": which}
        said = ended(spawn(*command, "--home", home, env=env)).went(5)
        assert f"file locks do not work in {home}" in said.err
        assert "put the home on a local disk with --home" in said.err
        assert "Traceback" not in said.err


@pytest.mark.faults
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_disk_that_fails_at_each_write_and_sync(disk: Disk, error: int, part: int) -> None:
    calls = range(1 + part, count(disk) + 1, 4)
    ends = {at: trial(disk, at, (300, 2_000)[at % 8 == part], error) for at in calls}
    gone = [at for at, end in ends.items() if end == "gone"]
    print(f"{len(ends)} calls failed in turn: the worker went on after {len(ends) - len(gone)}, ended after {gone}")
