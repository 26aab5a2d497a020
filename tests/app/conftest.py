"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast.app.cli import main
from tests.app.api_program import call
from tests.app.terminal import PRICE, Said, Type, in_scratch, script, turn


@pytest.fixture(name="type")
def type_(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a command in this process, in an empty folder of its own."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def run(*words: str | Path) -> Said:
        capfd.readouterr()
        try:
            code = main(in_scratch(words))
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture
def publisher(tmp_path: Path) -> str:
    """Publishes the front page; 0.315 dollars a turn."""
    return script(tmp_path / "m.json", call("publish", page="front"), turn(text="It is out."), price=PRICE)


@pytest.fixture
async def hf(holdfast_home: Path) -> AsyncIterator[holdfast.Holdfast]:
    """The home of this test, opened."""
    async with holdfast.open() as opened:
        assert opened.home == holdfast_home
        yield opened
