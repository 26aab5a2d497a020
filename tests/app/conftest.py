"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.app.cli import main
from tests.app.terminal import Said, Type


@pytest.fixture(name="type")
def type_(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types a command in this process, in an empty folder of its own."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def run(*words: str | Path) -> Said:
        capfd.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return run
