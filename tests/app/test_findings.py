"""Steps that failed for a new user: each script in `findings/` types them and shows that they work now.

A script begins with what the user wanted, what happened before, and what happens now. It runs in an empty directory
with an empty HOME and a home of Holdfast of its own, with the real command against scripted models.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_S

FOLDER = Path(__file__).parent / "findings"
ROOT = FOLDER.parents[2]
SCRIPTS = sorted(FOLDER.glob("*/*.sh"))


def environment(base: Path) -> dict[str, str]:
    """The variables of a new user, and those that the scripts need."""
    programs = base / "bin"
    for folder in (programs, base / "home", base / "work"):
        folder.mkdir()
    for name in ("on_terminal", "server"):
        (programs / name).write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT}:$PYTHONPATH exec {sys.executable} {FOLDER}/{name}.py "$@"\n'
        )
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "PATH": path,
        "HOME": str(base / "home"),
        "HOLDFAST_HOME": str(base / "hf"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT / "tests" / "offline"),
        "TZ": "UTC",
        "LIB": str(FOLDER / "lib.sh"),
        "SAID": str(base / "said"),
        "DOCS": str(ROOT / "docs"),
        "PORT": str(port),
        "MINE": "--take-over" if os.geteuid() == 0 else "",
    }


@pytest.mark.parametrize("script", [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in SCRIPTS])
def test_the_step_that_failed_works(script: Path, tmp_path: Path) -> None:
    variables = environment(tmp_path)
    done = subprocess.run(
        ["bash", str(script)],
        cwd=tmp_path / "work",
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_forty_and_each_says_what_happened_before() -> None:
    assert len(SCRIPTS) >= 40
    for script in SCRIPTS:
        text = script.read_text()
        assert all(f"\n# {word}: " in text for word in ("before", "now")), script
