"""Lock files that say who lives (S5)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import LogUnavailable
from holdfast.log.worker_locks import Worker, is_live


def test_a_worker_lives_until_it_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "workers"
    assert not is_live(folder, "wrk_1")
    with Worker.start(folder, "wrk_1") as worker:
        assert is_live(folder, "wrk_1")
        assert not is_live(folder, "wrk_2")
        worker.close()
        assert not is_live(folder, "wrk_1")
    assert list(folder.iterdir()) == []


def test_an_id_is_one_workers(tmp_path: Path) -> None:
    with Worker.start(tmp_path, "wrk_1"):
        with pytest.raises(LogUnavailable, match="another process runs as wrk_1"):
            Worker.start(tmp_path, "wrk_1")
        assert is_live(tmp_path, "wrk_1")
    with Worker.start(tmp_path, "wrk_1"):
        assert is_live(tmp_path, "wrk_1")


def test_only_its_user_reads_the_lock_and_no_child_inherits_it(tmp_path: Path) -> None:
    with Worker.start(tmp_path / "workers", "wrk_1"):
        (lock,) = (tmp_path / "workers").iterdir()
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
        fds = [int(name) for name in os.listdir("/proc/self/fd")]
        mine = [fd for fd in fds if _path(fd) == str(lock)]
        assert len(mine) == 1
        assert not os.get_inheritable(mine[0])


def test_the_dead_are_swept_and_the_living_are_not(tmp_path: Path) -> None:
    (tmp_path / "wrk_dead.lock").touch()
    (tmp_path / "wrk_half.new").touch()
    with Worker.start(tmp_path, "wrk_1"), Worker.start(tmp_path, "wrk_2"):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["wrk_1.lock", "wrk_2.lock"]
        assert is_live(tmp_path, "wrk_1")


def test_starting_at_once_takes_nobodys_lock(tmp_path: Path) -> None:
    """Each start sweeps; none may sweep a lock file that another is just making."""
    script = """
import sys
from pathlib import Path
from holdfast.log.worker_locks import Worker, is_live
for turn in range(100):
    with Worker.start(Path(sys.argv[1]), f"wrk_{sys.argv[2]}_{turn}") as worker:
        assert is_live(Path(sys.argv[1]), worker.worker_id), worker.worker_id
"""
    children = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path), str(n)]) for n in range(4)]
    assert [child.wait(120) for child in children] == [0] * 4


@pytest.mark.parametrize("name", ["", "../wrk", "a/b", "wrk 1", "x" * 101, "wrk\n"])
def test_a_name_that_is_a_path_is_nobodys(tmp_path: Path, name: str) -> None:
    assert not is_live(tmp_path, name)
    with pytest.raises(ValueError, match="not a valid worker id"):
        Worker.start(tmp_path, name)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogUnavailable, match="--home"):
        Worker.start(tmp_path / "file" / "workers", "wrk_1")
    with pytest.raises(LogUnavailable, match="unknown whether its worker lives"):
        is_live(tmp_path / "file", "wrk_1")


def _path(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
