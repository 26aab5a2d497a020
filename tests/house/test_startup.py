"""What a start loads. How long it takes is measured by bench/startup.py."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"anyio", "asyncio", "concurrent", "ctypes", "http", "logging", "msgspec", "sqlite3", "ssl", "urllib"}

LOADED = "import sys\n{}\nsys.stderr.write(' '.join(sys.modules))"

HELP = """
from holdfast.app.cli import main
try:
    main(["--help"])
except SystemExit as end:
    assert not end.code
"""


def modules_after(code: str) -> set[str]:
    """The modules in memory after `code` ran in a fresh Python."""
    # -S: what a site package loads at every start is not ours.
    paths = [path for path in sys.path if path]
    code = f"import sys; sys.path[:0] = {paths!r}\n" + LOADED.format(code)
    done = subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def loaded_by(code: str) -> set[str]:
    """The top-level modules in memory after `code` ran in a fresh Python."""
    return {name.partition(".")[0] for name in modules_after(code)}


def test_import_loads_nothing_heavy() -> None:
    assert loaded_by("import holdfast") & HEAVY == set()


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by(HELP) & HEAVY == set()


def test_a_heavy_import_would_be_seen() -> None:
    assert {"asyncio", "ssl"} <= loaded_by("import asyncio, ssl")


def test_a_session_that_is_no_loop_loads_no_loop() -> None:
    loaded = modules_after("import holdfast.app.drive, holdfast.app.cli.ps, holdfast.app.cli.run")
    assert "holdfast.app.models" in loaded
    assert [name for name in loaded if name.startswith("holdfast.kinds.loop")] == []
