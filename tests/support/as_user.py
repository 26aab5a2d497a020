"""Run test code as an ordinary user, from tests that run as root.

The system's Python, the source, and the few packages that it needs are copied to a folder that every user can
read. The code is a module of `tests` with a `main` that prints JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_S

UID = 61_234
PYTHON = "/usr/bin/python3"

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = (
    *("anyio", "idna", "msgspec", "sniffio", "typing_extensions"),
    *("h11", "cryptography", "_cffi_backend"),
)


def unable() -> str:
    """Why it cannot be done here; empty when it can."""
    if os.getuid() != 0:
        return "these tests run as an ordinary user already"
    if not os.access(PYTHON, os.X_OK):
        return f"{PYTHON} is not there"
    asked = subprocess.run([PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, check=True)
    if tuple(int(part) for part in asked.stdout.split()) != sys.version_info[:2]:
        return f"{PYTHON} is another Python than {sys.version_info[0]}.{sys.version_info[1]}, whose msgspec is at hand"
    return ""


def reachable_source(base: Path) -> Path:
    """A folder that any user can import everything from."""
    folder = base / "importable"
    folder.mkdir()
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            shutil.copytree(origin.parent, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, folder / origin.name)
    for name in ("src/holdfast", "tests"):
        target = folder / Path(name).name
        shutil.copytree(_ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path, folders, files in os.walk(folder):
        os.chmod(path, 0o755)
        for entry in files:
            os.chmod(os.path.join(path, entry), 0o644)
        del folders
    return folder


def run_as_user(base: Path, module: str, *arguments: str, timeout_s: float = PATIENCE_S) -> Any:
    """Run `python -m module base/mine …` as the ordinary user; returns the JSON it prints.

    `base` must be passable by others. Skips, saying why, where it cannot be done.
    """
    if problem := unable():
        pytest.skip(problem)
    source = reachable_source(base)
    mine = base / "mine"
    mine.mkdir()
    os.chown(mine, UID, UID)
    done = subprocess.run(
        [PYTHON, "-m", module, str(mine), *arguments],
        user=UID,
        group=UID,
        extra_groups=[],
        cwd=source,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(source), "HOME": str(mine), "CANARY": "canary-of-the-launcher"},
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return json.loads(done.stdout)
