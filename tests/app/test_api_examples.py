"""The programs of examples/ run, and are what docs/python.md shows. `make check` has their types checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import PRICE, script, turn

ROOT = Path(__file__).parents[2]

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def calls(name: str, **value: Any) -> dict[str, Any]:
    """A turn that calls a tool."""
    return turn(tool_calls=[{"name": name, "input": value}])


TURNS = {
    "ten_lines": [calls("book", seat="12A"), turn(text="Seat 12A is yours.")],
    "approval": [calls("publish", page="front"), turn(text="The front page is out.")],
    "charge": [calls("charge", customer="Ann", cents=500), turn(text="Ann has paid.")],
}
"""What the model does in each of them."""

SAID = {
    "ten_lines": ["done Seat 12A is yours."],
    "approval": ["1 session.created", "publish:\n  page: front", "done The front page is out. 0.73"],
    "charge": ["[charge]\nAnn has paid.", "done: ses_", " Ann 500"],
}
"""What each of them prints."""


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in EXAMPLES])
def test_an_example_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL", script(tmp_path / "m.json", *TURNS[file.stem], price=PRICE))
    first, again = (
        subprocess.run([sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
        for _ in range(2)
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert (again.returncode, again.stderr) == (0, "")
    where = 0
    for words in SAID[file.stem]:
        where = first.stdout.index(words, where) + len(words)


def test_the_ledger_has_its_charge_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MODEL", script(tmp_path / "m.json", *TURNS["charge"], price=PRICE))
    for _ in range(2):
        subprocess.run([sys.executable, str(ROOT / "examples" / "charge.py")], cwd=tmp_path, check=True)
    assert len((tmp_path / "ledger.txt").read_text().splitlines()) == 1


def test_the_page_shows_the_examples() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert EXAMPLES
    for file in EXAMPLES:
        code = file.read_text().split('"""', 2)[2].strip()
        assert code in page, f"docs/python.md shows another {file.name}"


def test_the_first_example_has_ten_lines() -> None:
    code = (ROOT / "examples" / "ten_lines.py").read_text().split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
