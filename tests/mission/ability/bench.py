"""Runs checks and their probes on trees with real runners."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.facts.mission import Check
from holdfast.kinds.mission.check import ability
from holdfast.kinds.mission.check.ability import Outcome, Probe
from holdfast.kinds.mission.contract.protected import DEFAULT_PROTECTED

NONCE = "c0ffee5eed"

Files = dict[str, bytes]

MODULES = Path(os.environ.get("HOLDFAST_TEST_NODE_MODULES", "/nonexistent"))
GO = os.environ.get("HOLDFAST_TEST_GO") or shutil.which("go") or "/nonexistent"


def of(files: Mapping[str, str]) -> Files:
    """Files with these texts."""
    return {path: text.encode() for path, text in files.items()}


class Ran(NamedTuple):
    """How a run ended."""

    exit_code: int
    output: str
    outcomes: dict[str, Outcome] | None


def node_modules() -> Path:
    """A folder with jest, vitest, and mocha; the test is skipped without one."""
    if not MODULES.is_dir() or shutil.which("node") is None:
        pytest.skip("HOLDFAST_TEST_NODE_MODULES names no folder with jest, vitest, and mocha")
    return MODULES


def go() -> Path:
    """The program of Go; the test is skipped without one."""
    if not Path(GO).is_file():
        pytest.skip("no Go: HOLDFAST_TEST_GO names none, and there is none on PATH")
    return Path(GO)


def run(checks: Sequence[Check], files: Mapping[str, bytes], modules: Path | None = None) -> Ran:
    """Run checks that share a command on these files, in a folder that goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="ability-") as name:
        root = Path(name)
        for path, data in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        if modules is not None:
            (root / "node_modules").symlink_to(modules)
        plan = ability.reporting(checks, files, NONCE)
        programs = [str(Path(sys.executable).parent), *([str(go().parent)] if "go " in plan.command else [])]
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "NODE_OPTIONS"))},
            "PATH": ":".join([*programs, os.environ["PATH"]]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of this project take most of the time
            "GOFLAGS": "-count=1",
        }
        done = subprocess.run(
            ["bash", "-c", plan.command], cwd=root, env=env, capture_output=True, text=True, timeout=180, check=False
        )
        report = root / plan.report if plan.report else None
        written = report.read_bytes() if report is not None and report.is_file() else None
        outcomes = ability.outcomes(checks, files, written) if written is not None else None
        return Ran(done.returncode, done.stdout + done.stderr, outcomes)


def laid(files: Mapping[str, bytes], probe: Probe) -> Files:
    """The tree of a probe."""
    changed = {**files, **probe.files}
    return {path: data for path, data in changed.items() if data is not None}


def probed(
    checks: Check | Sequence[Check], files: Files, modules: Path | None = None, *kinds: str
) -> dict[str, list[bool]]:
    """What each kind of probe shows of each check."""
    group = (checks,) if isinstance(checks, Check) else tuple(checks)
    found = ability.probes(group, files, paths=[()] * len(group), protected=DEFAULT_PROTECTED, nonce=NONCE)
    told: dict[str, list[bool]] = {}
    for probe in found if not kinds else [probe for probe in found if probe.kind in kinds]:
        ran = run(probe.checks, laid(files, probe), modules)
        each = [ability.shown(probe, index, ran.exit_code, ran.outcomes) for index in range(len(group))]
        told[probe.kind] = each
    return told
