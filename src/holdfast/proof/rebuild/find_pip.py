"""Find a copy of pip on this machine; fetch source distributions and unpack wheels with it, executing nothing.

Holdfast does not depend on pip, and its own environment often lacks it. Any copy works, under the interpreter that runs
the tests: pip then chooses wheels and markers for that interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.proof.rebuild.run_pip import NO_SUCH, REPORT, UNREACHABLE

RUNNER = Path(__file__).with_name("run_pip.py")

COMMAND_TIMEOUT_S = 600.0
"""Time limit of one run of pip."""

_WHERE = "import os, pip; print(os.path.dirname(os.path.dirname(os.path.abspath(pip.__file__))))"


class Fetched(msgspec.Struct, frozen=True):
    """Source distribution on disk. `sha256` is hex, over the archive."""

    path: Path
    sha256: str


class Pip:
    """Copy of pip at `root`, run by the interpreter `python`. It reads pip's own configuration."""

    def __init__(self, python: str, root: str) -> None:
        self._python = python
        self._root = root

    def version(self) -> str:
        """Return `pip 26.3 from …`, or an empty string if this copy does not run under this interpreter."""
        done = self._run("run", "--version")
        return done.stdout.strip() if done.returncode == 0 else ""

    def fetch(self, name: str, version: str, target: Path) -> Fetched:
        """Save the source distribution of that version in the folder `target` without running any of it.

        Raises `UsageError` if there is none, `CannotRunSafely` if no index answers.
        """
        done = self._run("fetch", str(target), name, version)
        report = target / REPORT
        known = json.loads(report.read_text()) if report.exists() else {}
        if done.returncode == 0 and "filename" in known:
            return Fetched(target / known["filename"], known["sha256"])
        if done.returncode == NO_SUCH:
            raise UsageError(_no_such(name, version, known.get("versions", [])))
        said = known["troubles"][-1] if done.returncode == UNREACHABLE else _last_words(done)
        raise CannotRunSafely(
            f"{name} {version} could not be fetched: {said}. Nothing was changed. Check the network and the index "
            "that `pip config list` names, then try again"
        )

    def install(self, requirements: Sequence[str], target: Path) -> None:
        """Unpack the requirements and their dependencies into the folder `target`, from wheels alone.

        Raises `CannotRunSafely` if one has no wheel for this interpreter or no index answers.
        """
        done = self._run(
            "run",
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--quiet",
            "--no-compile",
            "--no-user",
            "--only-binary=:all:",
            f"--target={target}",
            *requirements,
        )
        if done.returncode != 0:
            raise CannotRunSafely(
                f"the test dependencies {', '.join(requirements)} could not be installed from wheels for "
                f"{self._python}: {_last_words(done)}. Nothing was changed. Check the network and the index that "
                "`pip config list` names, then try again"
            )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # -I: neither the current folder nor PYTHON* variables affect imports.
        return _command([self._python, "-I", str(RUNNER), self._root, *arguments])


def find_pip(python: str) -> Pip:
    """Find a pip that runs under the interpreter `python`. Raises `CannotRunSafely` if there is none."""
    for root in dict.fromkeys(_roots(python)):
        pip = Pip(python, root)
        if pip.version():
            return pip
    raise CannotRunSafely(
        f"no copy of pip was found that runs under {python}; it fetches the library and its test dependencies. "
        "Install one (`apt-get install python3-pip`, or uv) and try again"
    )


def _roots(python: str) -> Iterator[str]:
    # Nearest first: those without a process or network access. The wheel inside ensurepip is the fallback of every
    # virtual environment without pip.
    own = importlib.util.find_spec("pip")
    if own is not None and own.origin is not None:
        yield str(Path(own.origin).parent.parent)
    yield from _bundled()
    yield from _asked([python, "-I", "-c", _WHERE])
    uv = shutil.which("uv")
    if uv is not None:
        yield from _asked([uv, "tool", "run", "--quiet", "--from", "pip", "python", "-I", "-c", _WHERE])


def _bundled() -> Iterator[str]:
    folders = [Path(sysconfig.get_paths()["stdlib"]) / "ensurepip" / "_bundled"]
    packaged = sysconfig.get_config_var("WHEEL_PKG_DIR")
    if packaged:
        folders.append(Path(packaged))
    folders.append(Path("/usr/share/python-wheels"))
    for folder in folders:
        for wheel in sorted(folder.glob("pip-*.whl")):
            yield str(wheel)


def _asked(command: Sequence[str]) -> Iterator[str]:
    done = _command(command)
    if done.returncode == 0 and done.stdout.strip():
        yield done.stdout.strip().splitlines()[-1]


def _command(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            encoding="utf-8",
            errors="replace",
            check=False,
            cwd=sys.prefix,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"it took longer than {COMMAND_TIMEOUT_S:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]}: {error.strerror or error}")


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [f"pip ended with status {done.returncode}"])[-1].removeprefix("ERROR: ").rstrip(".")


def _no_such(name: str, version: str, versions: Sequence[str]) -> str:
    example = "a right one is --library tinydb==4.9.0"
    if not versions:
        return f"no index that pip asks has a source distribution (.tar.gz) named {name!r}; {example}"
    newest = ", ".join(versions[:5])
    return f"there is no source distribution (.tar.gz) of {name} {version}; the newest are {newest}; {example}"
