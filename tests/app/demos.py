"""Missions of `holdfast demo --mission` on the small library of our own: no network, real hands."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.app.terminal import Said, ended, spawn

MINI = "mini==1.0"

CACHES = Path(tempfile.gettempdir()) / f"holdfast-tests-missions-{os.getuid()}"
"""Which tests need which bodies is found out once for each library, and holds for all later runs."""

COST_USD = 0.307
"""What a mission without faults costs at the oracle's nominal price, to within some percent."""


def known_home(folder: Path, library: str) -> Path:
    """A home that knows what was found out about a library before."""
    CACHES.mkdir(mode=0o711, exist_ok=True)
    assert CACHES.stat().st_uid == os.getuid()
    folder.mkdir(mode=0o711)
    if (CACHES / library).exists():
        shutil.copytree(CACHES / library, folder / "cache")
    return folder


def keep_cache(home: Path, library: str) -> None:
    """Keep what was found out, whole or not at all: other tests may read it meanwhile."""
    if not (CACHES / library).exists():
        made = Path(tempfile.mkdtemp(dir=CACHES)) / "cache"
        shutil.copytree(home / "cache", made)
        with contextlib.suppress(OSError):  # another test was first
            made.rename(CACHES / library)
        shutil.rmtree(made.parent)


def mission(home: Path, *words: str) -> Said:
    """`holdfast demo --mission` on the small library."""
    said = ended(spawn("demo", "--mission", "--library", MINI, "--json", *words), timeout_s=400)
    keep_cache(home, MINI)
    return said


def sound(result: dict[str, Any]) -> None:
    """Whatever came of it: nothing that the harness vouches for is untrue, and nothing was found out twice."""
    assert result["false_done"] == []
    assert result["red_commits"] == []
    assert result["brief_wrong"] == []
    assert result["verdicts_again"] == 0
    assert result["chain_ok"]


def killed(home: Path, times: int) -> None:
    """A mission whose runtime is killed so often is done, and nothing is lost, done twice or paid for twice."""
    said = mission(home, "--kills", str(times), "--seed", "1").went()
    *events, result = said.lines
    sound(result)
    assert result["status"] == "done"
    assert result["kills"] == said.err.count("SIGKILL to the runtime") == times
    assert result["suite_green"]
    assert result["tests"] == {"passed": 59, "failed": 0, "errors": 0, "skipped": 0}
    assert len(result["met"]) == result["criteria"] == len(result["said_met"])
    # A request that died with its process is asked again: one for each session that was at work.
    assert result["presumed"] <= times * 2
    assert result["cost_usd"] <= COST_USD * 1.5
    types = Counter(event["type"] for event in events)
    assert types["contract.sealed"] == types["mission.opened"] == types["mission.planned"] == 1
    assert types["task.started"] == result["items"]
    assert types["mission.finished"] == 1
