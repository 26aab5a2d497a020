"""What a start loads. How long it takes is measured by bench/startup.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.app.cli import build_parser

HEAVY = {"anyio", "asyncio", "concurrent", "ctypes", "http", "logging", "msgspec", "sqlite3", "ssl", "urllib"}

OPTIONAL = {"anthropic", "apprise", "h11", "httpx", "keyring", "openai", "rich", "stamina", "standardwebhooks"}
"""Packages of extras: a plain run or list works without them, and must not pay for them."""

RARE = {"difflib", "fractions", "importlib.resources", "statistics", "zoneinfo"}
"""Modules of Python that take a start milliseconds each, and that few commands need."""

LOADED = "import sys\n{}\nsys.stderr.write('\\n' + ' '.join(sys.modules))"

VERB = """
from holdfast.app.cli import main
assert main({!r}) == 0
"""

HELP = """
from holdfast.app.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert not end.code
"""


def loaded_by(code: str) -> set[str]:
    """The modules in memory after `code` ran in a fresh Python, and the packages that they are in."""
    # -S: what a site package loads at every start is not ours.
    paths = [path for path in sys.path if path]
    code = f"import sys; sys.path[:0] = {paths!r}\n" + LOADED.format(code)
    done = subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True)
    names = done.stderr.splitlines()[-1].split()
    return {name.rsplit(".", depth)[0] for name in names for depth in range(name.count(".") + 1)}


def test_import_loads_nothing_heavy() -> None:
    assert loaded_by("import holdfast") & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by(HELP) & HEAVY == set()


@pytest.mark.parametrize("words", [["run", "x", "--no-sandbox", "--scratch"], ["ps"]])
def test_a_plain_agent_loads_no_other_kind_and_nothing_that_proves(words: list[str], tmp_path: Path) -> None:
    """Missions and loops are loaded when a session of theirs is met; simulator and proof are for their own verbs."""
    model = tmp_path / "model.json"
    model.write_text('{"turns": [{"text": "Done."}]}')
    words = [*words, "--home", str(tmp_path / "home"), *(["--model", f"scripted:{model}"] if "run" in words else [])]
    loaded = loaded_by(VERB.format(words))
    assert f"holdfast.app.cli.{words[0]}" in loaded
    others = ("holdfast.sim", "holdfast.proof", "holdfast.kinds.mission", "holdfast.kinds.loop")
    assert sorted(name for name in loaded if name.startswith(others)) == []
    assert loaded & (OPTIONAL | RARE) == set()


def test_a_command_builds_no_parser_of_another() -> None:
    (verbs,) = [action for action in build_parser("ps")._actions if action.dest == "verb"]
    assert list(verbs.choices or ()) == ["ps"]


def test_a_heavy_import_would_be_seen() -> None:
    assert {"asyncio", "ssl"} <= loaded_by("import asyncio, ssl")
