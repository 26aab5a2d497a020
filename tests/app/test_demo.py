"""The demonstration, whole: a real library, a real kill, a real judge."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import Said, Type, typed

CACHE = Path(tempfile.gettempdir()) / f"holdfast-tests-cache-{os.getuid()}"
"""What was fetched once is used again by later runs of the tests; pip's hashes are checked every time."""


@pytest.fixture
def home(holdfast_home: Path) -> Path:
    """A home whose cache is kept between runs of the tests."""
    CACHE.mkdir(mode=0o711, exist_ok=True)
    assert CACHE.stat().st_uid == os.getuid()
    holdfast_home.mkdir(mode=0o711)
    shutil.copytree(CACHE, holdfast_home / "cache")
    return holdfast_home


def demo(home: Path, *words: str | Path) -> Said:
    """`holdfast demo`. Skips when the package index cannot be reached and nothing is there from before."""
    said = typed("demo", *words)
    if said.code == 5 and "could not be fetched" in said.err:
        pytest.skip(said.err.splitlines()[-1])
    shutil.copytree(home / "cache", CACHE, dirs_exist_ok=True)
    return said.went()


def check(result: dict[str, Any], killed: bool) -> None:
    """Delivered: nothing lost, nothing twice, the module as published."""
    assert result["exit_code"] == 0
    assert result["status"] == "done"
    assert (result["killed_at"] is not None) is killed
    assert result["effects"] == result["effects_expected"] > 0
    assert (result["lost"], result["unknown"], result["dispatched_twice"]) == (0, 0, 0)
    assert result["identical"]
    assert result["chain_ok"]
    assert result["tests"]["passed"] > 100
    assert result["tests"]["failed"] == result["tests"]["errors"] == 0


def test_killed_in_the_middle_of_a_command(type: Type, home: Path) -> None:
    said = demo(home, "--json")
    *events, result = said.lines
    check(result, killed=True)
    assert [event["seq"] for event in events] == list(range(1, result["events"] + 1))
    starts = [event for event in events if event["type"] == "shift.started"]
    assert len({event["pid"] for event in starts}) == 2
    taken = [event for event in events if event.get("reconciled")]
    killed = events[result["killed_at"] - 1]
    assert killed["type"] == "tool.dispatched"
    assert [event["call_id"] for event in taken] == [killed["call_id"]]
    assert "SIGKILL to the brain, process " in said.err
    assert type("wake", result["session_id"]).went().code == 0
    assert type("verify").went().code == 0


@pytest.mark.faults
def test_kept_and_killed_where_one_says(home: Path, tmp_path: Path) -> None:
    said = demo(home, "--kill-at", "40", "--keep", tmp_path / "kept")
    assert "killed   process " in said.out
    assert "with SIGKILL at event " in said.out
    assert "an oracle: it knew the true bodies" in said.out
    assert "judged   passed: 219 tests passed, 0 failed" in said.out
    assert (tmp_path / "kept" / "tinydb" / "queries.py").is_file()
    assert all(len(line) <= 130 for line in said.out.splitlines() if str(tmp_path) not in line)
