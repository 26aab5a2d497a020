"""The built wheel, as a newcomer installs it: all files in it, small, and the command works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import holdfast
from tests.house.source import ROOT, SRC, tracked

BIN = Path(sys.executable).parent
CORE_DISTRIBUTIONS = 10
INSTALLED_BYTES = 7_100_000
"""What the core may take with all that it depends on; without a bound of its own nothing is small for long.

Search, and the server with its API and pages, are in the wheel, since their code is needed as soon as the extra `serve`
is installed; they have 600 kB of this. The log in PostgreSQL, with what many machines need, their
simulator, and their demo, has 150 kB.
"""


def run(*command: str | Path, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this tree."""
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target], cwd=ROOT, check=True)
    (file,) = target.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the locked run-time dependencies."""
    target = tmp_path_factory.mktemp("wheelhouse")
    lock = ROOT / "requirements.txt"
    run(sys.executable, "-m", "pip", "download", "-qq", "--require-hashes", "--no-deps", "-r", lock, "-d", target)
    return target


@pytest.fixture(scope="module")
def installed(wheel: Path, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel in it, made without a registry."""
    place = tmp_path_factory.mktemp("fresh") / "venv"
    run(BIN / "uv", "venv", "-q", "--no-config", "--python", sys.executable, place)
    run(
        *(BIN / "uv", "pip", "install", "-q", "--no-config", "--offline", "--no-index", "--find-links", wheelhouse),
        *("--python", place / "bin" / "python", wheel),
    )
    return place


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {file.relative_to(SRC).as_posix() for file in tracked() if file.is_relative_to(SRC)}
    assert wanted - inside == set()
    assert {name for name in inside if ".dist-info/" not in name} - wanted == set()
    assert any(name.endswith("/licenses/LICENSE") for name in inside)


def test_the_command_works_in_a_fresh_environment(installed: Path) -> None:
    command = installed / "bin" / "holdfast"
    assert holdfast.__version__ in run(command, "version")
    assert "usage: holdfast" in run(command, "--help")


def test_the_core_install_is_small(installed: Path) -> None:
    code = "import importlib.metadata as m; print(*sorted({d.name for d in m.distributions()}))"
    names = run(installed / "bin" / "python", "-c", code, PYTHONPATH="").split()
    assert "holdfast" in names
    assert len(names) <= CORE_DISTRIBUTIONS
    there = [file for file in (installed / "lib").rglob("*") if file.is_file() and file.suffix != ".pyc"]
    size = sum(file.stat().st_size for file in there)
    assert size <= INSTALLED_BYTES


def test_uvx_runs_it_from_the_wheel(wheel: Path, wheelhouse: Path, tmp_path: Path) -> None:
    out = run(
        *(BIN / "uvx", "-q", "--no-config", "--offline", "--no-index", "--find-links", wheelhouse),
        *("--python", sys.executable, "--from", wheel, "holdfast", "version"),
        UV_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert holdfast.__version__ in out


def test_pipx_runs_it_from_the_wheel(wheel: Path, wheelhouse: Path, tmp_path: Path) -> None:
    homes = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "PIPX_MAN_DIR": str(tmp_path)}
    run(
        *(BIN / "pipx", "install", "--quiet", "--python", sys.executable),
        *("--pip-args", f"--no-index --find-links {wheelhouse}", wheel),
        **homes,
    )
    command = shutil.which("holdfast", path=str(tmp_path / "bin"))
    assert command is not None
    assert holdfast.__version__ in run(command, "version")
