"""Every view at 80 and 60 columns is the one that was published, fits its terminal, and shows the work."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.captures.golden import FOLDER, LIVE, SHARE, ids, sections, share, texts
from tests.captures.scenes import Stage, ask_for_help, play, run
from tests.captures.terminals import shown

BUSY = {"mission, 80 columns", "mission, 60 columns", "mission end, 80 columns"}
"""Captures whose lines depend on what its parts did at the same time: only the rules are checked, not the text."""


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage in a folder whose path has the length that it has in the golden files."""
    base = Path(tempfile.mkdtemp(prefix="holdfast_", dir="/tmp"))
    base.chmod(0o711)
    monkeypatch.setenv("HOLDFAST_HOME", str(base / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(base / "config"))
    yield Stage(base)
    shutil.rmtree(base, ignore_errors=True)


def check(stage: Stage) -> None:
    """Compare the captures with the golden files, and hold them to the rules."""
    for name, text in texts(stage.scenes, stage.base).items():
        golden = sections((FOLDER / name).read_text())
        for title in sections(text).keys() - BUSY:
            body = sections(text)[title]
            assert body == golden[title], f"{title}: look at it; if it is better, `make captures` publishes it"
    assert {(scene.name, scene.columns): scene.wraps for scene in stage.scenes if scene.wraps} == {}
    shares = {
        (scene.name, scene.columns): share(scene, " ".join(stage.texts)) for scene in stage.scenes if scene.name in LIVE
    }
    assert shares
    assert {name: part for name, part in shares.items() if part < SHARE} == {}
    for name in ids(stage.scenes):
        terminal = shown(stage.base, "show", name, columns=80)
        assert terminal.code == 0, terminal.text


def test_a_run_and_the_main_help(stage: Stage) -> None:
    run(stage)
    ask_for_help(stage, [(), ("run",), ("sim",)])
    check(stage)


@pytest.mark.faults
def test_every_view(stage: Stage) -> None:
    play(stage)
    check(stage)
