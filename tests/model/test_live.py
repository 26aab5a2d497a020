"""`make live`: what it says without a model, and the row that a run leaves."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.source import ROOT
from tests.model.test_names import VARIABLES

SCRIPT = ROOT / "scripts" / "live.py"

RESULT = {
    "type": "result",
    "status": "done",
    "exit_code": 0,
    "library": "voluptuous==0.16.0",
    "model": "ollama:qwen3",
    "tests": {"passed": 167, "failed": 0, "errors": 0},
    "calls": 41,
    "cost_usd": None,
    "wall_s": 612.4,
}


def live() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("live", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bare() -> dict[str, str]:
    """An environment without any key, in which Ollama is said to be elsewhere."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**kept, "OLLAMA_HOST": "http://models.example:1"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run([sys.executable, SCRIPT, *words], env=bare(), capture_output=True, text=True, check=False)


def test_without_a_key_it_says_what_to_set() -> None:
    done = run("--model", "anthropic:claude-x")
    assert done.returncode == 5
    assert "ANTHROPIC_API_KEY" in done.stderr


def test_without_any_model_it_says_what_there_could_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = live()
    monkeypatch.setattr(sys, "argv", ["live.py"])
    monkeypatch.setattr(module, "chosen", lambda args: [])
    assert module.main() == 5
    assert "export ANTHROPIC_API_KEY" in capsys.readouterr().err


def test_a_run_adds_a_row_to_the_end_of_the_page(tmp_path: Path) -> None:
    module = live()
    page = tmp_path / "models.md"
    page.write_text((ROOT / "docs" / "models.md").read_text())
    before = page.read_text()
    module.append(page, module.row(RESULT, "2026-11-21"))
    failed = {**RESULT, "exit_code": 1, "status": "parked", "cost_usd": 0.12345}
    module.append(page, module.row(failed, "2026-11-22"))
    *_, first, second = page.read_text().splitlines()
    assert page.read_text().startswith(before.rstrip())
    assert first == (
        "| 2026-11-21 | `ollama:qwen3` | voluptuous==0.16.0 | yes | 167 passed, 0 failed | 41 | unpriced | 612 s |"
    )
    assert "| no (parked) |" in second
    assert "| $0.1235 |" in second or "| $0.1234 |" in second
    header = next(line for line in before.splitlines() if line.startswith("| date"))
    assert first.count("|") == header.count("|")
