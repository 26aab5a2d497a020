"""Test runners for hands: pytest beside a Python of the system, packages of npm, from what this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

from tests.support.compiled import compile_modules

PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "ruff")

NPM = ("jest@30", "mocha@11", "vitest@3", "chai@6")

PATH = "/usr/local/bin:/usr/bin:/bin"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "holdfast-tests"


def pytest_home(into: Path) -> None:
    """A virtual environment with pytest, copied from the one that runs this; nothing is fetched."""
    home = into / "venv"
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_paths()["purelib"])
    for name in PYTEST:
        shutil.copytree(here / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(here / "py.py", site / "py.py")
    compile_modules(site)  # hands cannot write there
    ruff = Path(sys.executable).parent / "ruff"
    shutil.copy(ruff, home / "bin" / "ruff")
    program = '#!/bin/sh\nexec /opt/pytest/bin/python -m pytest "$@"\n'
    (home / "bin" / "pytest").write_text(program)
    for path in (home / "bin" / "pytest", home / "bin" / "ruff"):
        path.chmod(0o755)


@cache
def node_modules() -> Path | None:
    """The packages of npm, fetched once by its own client; None where that is not possible."""
    folder = _cache() / "runners"
    if not (folder / "node_modules" / "jest").is_dir():
        npm = shutil.which("npm", path=PATH)
        if npm is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        done = subprocess.run([npm, "install", "--no-audit", "--no-fund", "--silent", *NPM], cwd=folder, check=False)
        if done.returncode:
            return None
    return folder / "node_modules"


def has(need: str) -> bool:
    """Whether this machine has what a repository needs."""
    if need == "npm":
        return node_modules() is not None
    return need == "pytest" or shutil.which(need, path=PATH) is not None


def prepare(into: Path) -> None:
    """Lay out everything that hands may want under a folder that any user can pass."""
    pytest_home(into)
    modules = node_modules()
    if modules is not None:
        shutil.copytree(modules, into / "node_modules", symlinks=True)


def mounts(needs: tuple[str, ...], prepared: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Folders to lay read-only into hands, and the variables that go with them."""
    laid: dict[str, str] = {}
    env: dict[str, str] = {}
    if "pytest" in needs:
        laid[str(prepared / "venv")] = "/opt/pytest"
        env["PATH"] = f"/opt/pytest/bin:{PATH}"
    if "npm" in needs:
        laid[str(prepared / "node_modules")] = "/node_modules"
    return laid, env
