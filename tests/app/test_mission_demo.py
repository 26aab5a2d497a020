"""A whole mission as `holdfast demo --mission` runs it, killed at random moments; and what cannot be asked for.

About 40 s on two quiet processors. More of the same, and real libraries, are in `test_mission_demo_long.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.demos import MINI, killed, known_home
from tests.app.terminal import Type


@pytest.fixture
def home(holdfast_home: Path) -> Path:
    """A home that knows what was found out about the library before."""
    return known_home(holdfast_home, MINI)


def test_killed_once(home: Path) -> None:
    killed(home, 1)


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (("--fault", "erly_done"), ("did you mean early_done", "--fault early_done:0.3")),
        (("--fault", "early_done:2"), ("from 0 to 1",)),
        (("--fault", "tamper.nothing_such"), ("there is no tamper 'nothing_such'",)),
        (("--fault", "stuck.x"), ("there are",)),
        (("--workers", "0"), ("--workers 0 has to be from 1",)),
        (("--kills", "-1"), ("--kills -1 has to be from 0",)),
        (("--rubric-share", "1.5"), ("from 0 to 1",)),
        (("--budget", "much"), ("much",)),
        (("--library", "mini"), ("NAME==VERSION",)),
        (("--model", "scripted:x.json"), ("leave them out",)),
        (("--library", MINI, "--with", "pyyaml"), ("--with pyyaml", "needs no package")),
    ],
)
def test_bad_words(type: Type, holdfast_home: Path, words: tuple[str, ...], pieces: tuple[str, ...]) -> None:
    type("demo", "--mission", *words).refused(2, *pieces)


def test_there_is_a_result_line_whatever_happens(type: Type, holdfast_home: Path) -> None:
    said = type("demo", "--mission", "--library", MINI, "--with", "pyyaml", "--json")
    (result,) = said.lines
    assert (said.code, result["type"], result["status"], result["exit_code"]) == (2, "result", "error", 2)
    assert "needs no package" in result["error"]


def test_words_of_missions_alone(type: Type, holdfast_home: Path) -> None:
    type("demo", "--kills", "3").refused(2, "--kills goes with --mission")
    assert not holdfast_home.exists()


def test_a_folder_that_is_in_use(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    type("demo", "--mission", "--library", MINI, "--keep", tmp_path / "kept").refused(2, "not an empty folder")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine.txt"]
